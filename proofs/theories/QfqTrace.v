(** An acceptor of traces of QFQ: a trace that it accepts is a run of the model, so the theorems of [Qfq] and
    [QfqService] hold for it. It breaks no ties: a departing flow must be eligible, and no eligible flow may finish
    earlier. Flows are indexed by group and rounded start, so an event takes time logarithmic in the number of flows
    and linear in the number of groups. *)
From Coq Require Import ZArith List Lia Bool Setoid Morphisms Orders MSetAVL FMapAVL FMapFacts OrderedTypeEx.
From Fairlane Require Import QfqService.
Import ListNotations.
Open Scope Z_scope.

(** Flows by their rounded starts. *)
Module Key <: Orders.OrderedType.
  Definition t := (Z * nat)%type.
  Definition eq := @eq t.
  Definition eq_equiv : Equivalence eq := eq_equivalence.
  Definition lt (a b : t) := fst a < fst b \/ fst a = fst b /\ (snd a < snd b)%nat.
  Definition compare (a b : t) :=
    match fst a ?= fst b with Eq => (snd a ?= snd b)%nat | order => order end.

  Lemma lt_strorder : StrictOrder lt.
  Proof. split; [intros a H | intros a b d H H']; unfold lt in *; lia. Qed.

  Lemma lt_compat : Proper (eq ==> eq ==> iff) lt.
  Proof. now intros a b -> d e ->. Qed.

  Lemma compare_spec a b : CompSpec eq lt a b (compare a b).
  Proof.
    destruct a as [x k], b as [y j]. unfold compare, lt. simpl.
    destruct (Z.compare_spec x y) as [-> | |]; [destruct (Nat.compare_spec k j) as [-> | |] | |]; constructor; unfold lt; simpl; auto.
    reflexivity.
  Qed.

  Lemma eq_dec (a b : t) : {eq a b} + {~ eq a b}.
  Proof. unfold eq. repeat decide equality. Defined.
End Key.

Module Keys := MSetAVL.Make Key.
Module Flows := FMapAVL.Make OrderedTypeEx.Nat_as_OT.
Module FlowFacts := FMapFacts.WFacts_fun OrderedTypeEx.Nat_as_OT Flows.

Lemma key_eq x k y j : Key.eq (x, k) (y, j) <-> x = y /\ k = j.
Proof. unfold Key.eq. split; [intros [= -> ->]; auto | intros [-> ->]; reflexivity]. Qed.

(** * Queues of packet lengths *)

Definition fifo := (list Z * list Z)%type.
Definition items (q : fifo) := fst q ++ rev (snd q).
Definition sound (q : fifo) := fst q = [] -> snd q = [].

Definition push l (q : fifo) : fifo :=
  match fst q with [] => ([l], []) | _ => (fst q, l :: snd q) end.

Definition pop (q : fifo) : option (Z * fifo) :=
  match fst q with
  | [] => None
  | [l] => Some (l, (rev_append (snd q) [], []))
  | l :: f => Some (l, (f, snd q))
  end.

Lemma push_items l q : sound q -> items (push l q) = items q ++ [l] /\ sound (push l q).
Proof.
  destruct q as [[| x f] b]; unfold sound, push, items; simpl; intros H.
  - rewrite H by reflexivity. auto.
  - split; [now rewrite <- app_assoc | discriminate].
Qed.

Lemma pop_items q l q' : sound q -> pop q = Some (l, q') -> items q = l :: items q' /\ sound q'.
Proof.
  destruct q as [[| x [| y f]] b]; unfold sound, pop, items; simpl; intros H; try discriminate; intros [= <- <-]; simpl.
  - rewrite <- rev_alt, app_nil_r. auto.
  - split; [reflexivity | discriminate].
Qed.

Lemma empty_items q : sound q -> fst q = [] <-> items q = [].
Proof.
  unfold sound, items. destruct q as [[| x f] b]; simpl; intros H; [| split; discriminate].
  rewrite H by reflexivity. simpl. tauto.
Qed.

(** * The acceptor *)

(** Cost of a byte, slot, group, longest packet, S, and the queue of a flow. *)
Record row := { cost : Z; slot : Z; group : Z; longest : Z; stamp : Z; queue : fifo }.

(** V, the last finish of all flows, all flows, and the backlogged flows of each group by their rounded starts, with the
    slot of the group. *)
Record table := { now : Z; latest : Z; rows : Flows.t row; heads : list (Z * (Z * Keys.t)) }.

Definition at_time t to := {| now := to; latest := latest t; rows := rows t; heads := heads t |}.

Inductive refusal :=
| No_flow
| Bad_length (longest : Z)
| No_packet
| Other_length (first : Z)
| Not_eligible (start now : Z)
| Overtakes (flow : nat) (its_finish finish : Z).

(** The head of a group and its rounded finish, if it is eligible. *)
Definition head_of (now : Z) (e : Z * (Z * Keys.t)) : option (nat * Z) :=
  match Keys.min_elt (snd (snd e)) with
  | Some (x, k) => if x <=? now then Some (k, x + 2 * fst (snd e)) else None
  | None => None
  end.

Definition lowest (unit now i : Z) hs :=
  fold_right (fun e acc =>
    if i <? fst e then match head_of now e with Some (_, f) => Z.min f acc | None => acc end else acc)
    (now / unit * unit) hs.

Fixpoint overtaken (now f : Z) hs : option (nat * Z) :=
  match hs with
  | [] => None
  | e :: hs =>
      match head_of now e with
      | Some (k, f') => if f' <? f then Some (k, f') else overtaken now f hs
      | None => overtaken now f hs
      end
  end.

Definition first_start (hs : list (Z * (Z * Keys.t))) :=
  fold_right (fun e acc =>
    match Keys.min_elt (snd (snd e)) with
    | Some (x, _) => Some (match acc with Some m => Z.min x m | None => x end)
    | None => acc
    end) None hs.

Definition any_eligible now := existsb (fun e => match head_of now e with Some _ => true | None => false end).

(** V jumps to the first start if no flow is eligible, and keeps its fraction. *)
Definition conserve unit t :=
  if any_eligible (now t) (heads t) then t else
  match first_start (heads t) with
  | Some m => at_time t (m + (now t - now t / unit * unit))
  | None => t
  end.

(** As the link becomes busy, V passes the last finish of all flows, by the rule of some schedulers ([restarts]). *)
Definition wake (restarts : bool) unit t :=
  let n := now t / unit * unit in
  if restarts && (n <? latest t) then
    match first_start (heads t) with None => at_time t (latest t + (now t - n)) | Some _ => t end
  else t.

Definition change j (f : Keys.t -> Keys.t) (hs : list (Z * (Z * Keys.t))) :=
  map (fun e => if fst e =? j then (fst e, (fst (snd e), f (snd (snd e)))) else e) hs.

Definition with_queue r q :=
  {| cost := cost r; slot := slot r; group := group r; longest := longest r; stamp := stamp r; queue := q |}.

Definition with_stamp r s q :=
  {| cost := cost r; slot := slot r; group := group r; longest := longest r; stamp := s; queue := q |}.

Definition arrive restarts unit t k l : table + refusal :=
  match Flows.find k (rows t) with
  | None => inr No_flow
  | Some r =>
      if (0 <? l) && (l <=? longest r) then
        match fst (queue r) with
        | [] =>
            let t := wake restarts unit t in
            let s := Z.max (stamp r) (lowest unit (now t) (group r) (heads t)) in
            inl (conserve unit {|
              now := now t;
              latest := latest t;
              rows := Flows.add k (with_stamp r s (push l (queue r))) (rows t);
              heads := change (group r) (Keys.add (s / slot r * slot r, k)) (heads t) |})
        | _ =>
            inl {|
              now := now t;
              latest := latest t;
              rows := Flows.add k (with_queue r (push l (queue r))) (rows t);
              heads := heads t |}
        end
      else inr (Bad_length (longest r))
  end.

(** The service of a byte moves V by [pace]. *)
Definition depart pace unit t k l : table + refusal :=
  match Flows.find k (rows t) with
  | None => inr No_flow
  | Some r =>
      match pop (queue r) with
      | None => inr No_packet
      | Some (first, q) =>
          let x := stamp r / slot r * slot r in
          let f := x + 2 * slot r in
          if negb (l =? first) then inr (Other_length first) else
          if now t <? x then inr (Not_eligible x (now t)) else
          match overtaken (now t) f (heads t) with
          | Some (j, f') => inr (Overtakes j f' f)
          | None =>
              let s := stamp r + l * cost r in
              let served := fun keys =>
                let keys := Keys.remove (x, k) keys in
                match fst q with [] => keys | _ => Keys.add (s / slot r * slot r, k) keys end in
              inl (conserve unit {|
                now := now t + l * pace;
                latest := Z.max (latest t) s;
                rows := Flows.add k (with_stamp r s q) (rows t);
                heads := change (group r) served (heads t) |})
          end
      end
  end.

Section QfqTrace.
Context {C : config} {ok : well_formed C}.
Let u0 : 0 < u := u_pos.
Let v0 : 0 < v := v_pos.

Definition row_of st (q : nat -> list Z) k r :=
  cost r = c k /\ slot r = sigma k /\ group r = g k /\ longest r = mx k /\ stamp r = S st k /\
  sound (queue r) /\ items (queue r) = q k.

(** A table stands for a state of the model, with the lengths in each queue. *)
Record represents t st (q : nat -> list Z) : Prop := {
  r_now : now t = V st;
  r_rows : forall k, In k flows -> exists r, Flows.find k (rows t) = Some r /\ row_of st q k r;
  r_none : forall k, ~ In k flows -> Flows.find k (rows t) = None;
  r_act : forall k, act st k = true <-> q k <> [];
  r_lengths : forall k l, In l (q k) -> 0 < l <= mx k;
  r_heads : forall j sg keys, In (j, (sg, keys)) (heads t) ->
    sg = 2 ^ j /\ forall x k, Keys.In (x, k) keys <-> active st k /\ g k = j /\ x = Rs st k;
  r_all : forall k, In k flows -> exists e, In e (heads t) /\ fst e = g k
}.

Section Heads.
Variables (t : table) (st : state) (q : nat -> list Z).
Hypothesis R : represents t st q.

Lemma first_key j sg keys : In (j, (sg, keys)) (heads t) ->
  match Keys.min_elt keys with
  | Some (x, k) => active st k /\ g k = j /\ x = Rs st k /\ forall y, active st y -> g y = j -> Rs st k <= Rs st y
  | None => forall y, active st y -> g y <> j
  end.
Proof.
  intros He. destruct (r_heads _ _ _ R _ _ _ He) as [_ H]. destruct (Keys.min_elt keys) as [[x k] |] eqn:E.
  - pose proof (Keys.min_elt_spec1 E) as H1. apply H in H1. destruct H1 as (Ha & Hg & ->). repeat split; try assumption; try apply Ha.
    intros y Hy Hgy. assert (H2 : Keys.In (Rs st y, y) keys) by (apply H; auto).
    pose proof (Keys.min_elt_spec2 E H2) as H3. apply Z.nlt_ge. intros Hlt. apply H3. left. exact Hlt.
  - intros y Hy Hg. pose proof (Keys.min_elt_spec3 E) as Hempty. apply (Hempty (Rs st y, y)). apply H. auto.
Qed.

Lemma head_is e : In e (heads t) ->
  match head_of (V st) e with
  | Some (k, f) => elig st k /\ g k = fst e /\ f = Rf st k /\ forall y, elig st y -> g y = fst e -> Rf st k <= Rf st y
  | None => forall y, elig st y -> g y <> fst e
  end.
Proof.
  destruct e as [j [sg keys]]. intros He. destruct (r_heads _ _ _ R _ _ _ He) as [Hsg _].
  pose proof (first_key _ _ _ He) as H. unfold head_of. simpl. destruct (Keys.min_elt keys) as [[x k] |].
  - destruct H as (Ha & Hg & -> & Hmin). destruct (Z.leb_spec (Rs st k) (V st)) as [Hle | Hgt].
    + repeat split; auto; try apply Ha.
      * unfold Rf, sigma. now rewrite Hg, Hsg.
      * intros y [Hy _] Hgy. specialize (Hmin y Hy Hgy). unfold Rf, sigma. rewrite Hg, Hgy. lia.
    + intros y [Hy Hle] Hgy. specialize (Hmin y Hy Hgy). lia.
  - intros y [Hy _]. auto.
Qed.

Lemma entry_of k : In k flows -> exists e, In e (heads t) /\ fst e = g k.
Proof. apply (r_all _ _ _ R). Qed.

Lemma lowest_is k s : S st k = s -> start st k (Z.max s (lowest u (V st) (g k) (heads t))).
Proof.
  intros <-.
  assert (H : forall hs, incl hs (heads t) ->
    let x := lowest u (V st) (g k) hs in
    (x = fu (V st) /\ forall e, In e hs -> g k < fst e -> head_of (V st) e = None) \/
    (exists b, elig st b /\ g k < g b /\ x = Z.min (fu (V st)) (Rf st b) /\
       forall e j f, In e hs -> g k < fst e -> head_of (V st) e = Some (j, f) -> Rf st b <= f)).
  { induction hs as [| e hs IH]; intros Hi; simpl; [left; split; [reflexivity | intros e []] |].
    specialize (IH (fun z Hz => Hi z (or_intror Hz))). pose proof (head_is e (Hi e (or_introl eq_refl))) as He.
    destruct (Z.ltb_spec (g k) (fst e)) as [Hlt | Hge].
    - destruct (head_of (V st) e) as [[j f] |] eqn:E.
      + right. destruct He as (Hj & Hgj & -> & Hmin).
        destruct IH as [[-> Hno] | (b & Hb & Hgb & -> & Hbmin)].
        * exists j. repeat split; try apply Hj; [lia | lia |]. intros e' j' f' [<- | Hin] Hg' E'; [rewrite E in E'; injection E'; lia |].
          rewrite Hno in E' by assumption. discriminate.
        * destruct (Z_le_gt_dec (Rf st j) (Rf st b)).
          -- exists j. repeat split; try apply Hj; [lia | lia |]. intros e' j' f' [<- | Hin] Hg' E'; [rewrite E in E'; injection E'; lia |].
             specialize (Hbmin e' j' f' Hin Hg' E'). lia.
          -- exists b. repeat split; try apply Hb; [lia | lia |]. intros e' j' f' [<- | Hin] Hg' E'; [rewrite E in E'; injection E'; lia |].
             exact (Hbmin e' j' f' Hin Hg' E').
      + destruct IH as [[-> Hno] | (b & Hb & Hgb & -> & Hbmin)].
        * left. split; [reflexivity |]. intros e' [<- | Hin] Hg'; auto.
        * right. exists b. repeat split; try apply Hb; auto. intros e' j' f' [<- | Hin] Hg' E'; [congruence | eauto].
    - destruct IH as [[-> Hno] | (b & Hb & Hgb & -> & Hbmin)].
      + left. split; [reflexivity |]. intros e' [<- | Hin] Hg'; [lia | auto].
      + right. exists b. repeat split; try apply Hb; auto. intros e' j' f' [<- | Hin] Hg' E'; [lia | eauto]. }
  destruct (H (heads t) (incl_refl _)) as [[-> Hno] | (b & Hb & Hgb & -> & Hmin)].
  - right. split; [| reflexivity]. intros y Hy. destruct (Z_le_gt_dec (g y) (g k)) as [| Hgt]; [assumption | exfalso].
    destruct (entry_of y (proj1 (proj1 Hy))) as (e & He & Hge). pose proof (head_is e He) as Hh.
    rewrite (Hno e He) in Hh by lia. apply (Hh y Hy). auto.
  - left. exists b. repeat split; try apply Hb; auto. intros y Hy Hgy.
    destruct (entry_of y (proj1 (proj1 Hy))) as (e & He & Hge). pose proof (head_is e He) as Hh.
    destruct (head_of (V st) e) as [[j f] |] eqn:E; [| exfalso; apply (Hh y Hy); auto].
    destruct Hh as (_ & _ & -> & Hle). specialize (Hle y Hy (eq_sym Hge)).
    specialize (Hmin e j _ He ltac:(lia) E). lia.
Qed.

Lemma overtaken_is f :
  match overtaken (V st) f (heads t) with
  | Some (k, f') => elig st k /\ f' = Rf st k /\ f' < f
  | None => forall y, elig st y -> f <= Rf st y
  end.
Proof.
  assert (H : forall hs, incl hs (heads t) ->
    match overtaken (V st) f hs with
    | Some (k, f') => elig st k /\ f' = Rf st k /\ f' < f
    | None => forall e j f', In e hs -> head_of (V st) e = Some (j, f') -> f <= f'
    end).
  { induction hs as [| e hs IH]; intros Hi; simpl; [intros e j f' [] |].
    specialize (IH (fun z Hz => Hi z (or_intror Hz))). pose proof (head_is e (Hi e (or_introl eq_refl))) as He.
    destruct (head_of (V st) e) as [[j f'] |] eqn:E.
    - destruct (Z.ltb_spec f' f) as [Hlt | Hge]; [destruct He as (Hj & _ & Hf & _); auto |].
      destruct (overtaken (V st) f hs) as [[k' f''] |]; [exact IH |].
      intros e' j' f'' [<- | Hin] E'; [rewrite E in E'; injection E'; lia | eauto].
    - destruct (overtaken (V st) f hs) as [[k' f''] |]; [exact IH |].
      intros e' j' f'' [<- | Hin] E'; [congruence | eauto]. }
  specialize (H (heads t) (incl_refl _)). destruct (overtaken (V st) f (heads t)) as [[k f'] |]; [exact H |].
  intros y Hy. destruct (entry_of y (proj1 (proj1 Hy))) as (e & He & Hge). pose proof (head_is e He) as Hh.
  destruct (head_of (V st) e) as [[j f'] |] eqn:E; [| exfalso; apply (Hh y Hy); auto].
  destruct Hh as (_ & _ & -> & Hle). specialize (Hle y Hy (eq_sym Hge)). specialize (H e j _ He E). lia.
Qed.

Lemma first_start_is :
  match first_start (heads t) with
  | Some m => exists k, active st k /\ m = Rs st k /\ forall y, active st y -> Rs st k <= Rs st y
  | None => forall y, ~ active st y
  end.
Proof.
  assert (H : forall hs, incl hs (heads t) ->
    match first_start hs with
    | Some m => exists k, active st k /\ m = Rs st k /\
        forall y e, active st y -> In e hs -> fst e = g y -> Rs st k <= Rs st y
    | None => forall y e, active st y -> In e hs -> fst e <> g y
    end).
  { induction hs as [| [j [sg keys]] hs IH]; intros Hi; simpl; [intros y e _ [] |].
    specialize (IH (fun z Hz => Hi z (or_intror Hz))). pose proof (first_key _ _ _ (Hi _ (or_introl eq_refl))) as He.
    fold (first_start hs) in *.
    destruct (Keys.min_elt keys) as [[x k] |].
    - destruct He as (Ha & Hg & -> & Hmin). destruct (first_start hs) as [m |].
      + destruct IH as (k' & Ha' & -> & Hmin'). destruct (Z_le_gt_dec (Rs st k) (Rs st k')).
        * exists k. repeat split; try apply Ha; [lia |]. intros y e Hy [<- | Hin] Hge; [apply Hmin; auto |].
          specialize (Hmin' y e Hy Hin Hge). lia.
        * exists k'. repeat split; try apply Ha'; [lia |]. intros y e Hy [<- | Hin] Hge; [| eauto].
          specialize (Hmin y Hy (eq_sym Hge)). lia.
      + exists k. repeat split; try apply Ha. intros y e Hy [<- | Hin] Hge; [apply Hmin; auto |].
        exfalso. eapply IH; eauto.
    - destruct (first_start hs) as [m |].
      + destruct IH as (k' & Ha' & -> & Hmin'). exists k'. repeat split; try apply Ha'.
        intros y e Hy [<- | Hin] Hge; [exfalso; eapply He; eauto | eauto].
      + intros y e Hy [<- | Hin] Hge; [eapply He; eauto | eapply IH; eauto]. }
  specialize (H (heads t) (incl_refl _)). destruct (first_start (heads t)) as [m |].
  - destruct H as (k & Ha & -> & Hmin). exists k. repeat split; try apply Ha. intros y Hy.
    destruct (entry_of y (proj1 Hy)) as (e & He & Hge). eauto.
  - intros y Hy. destruct (entry_of y (proj1 Hy)) as (e & He & Hge). eapply H; eauto.
Qed.

Lemma any_eligible_is : any_eligible (V st) (heads t) = false -> forall y, ~ elig st y.
Proof.
  intros H y Hy. destruct (entry_of y (proj1 (proj1 Hy))) as (e & He & Hge). pose proof (head_is e He) as Hh.
  destruct (head_of (V st) e) as [[j f] |] eqn:E.
  - assert (any_eligible (V st) (heads t) = true); [| congruence]. apply existsb_exists. exists e. now rewrite E.
  - apply (Hh y Hy). auto.
Qed.
End Heads.

(** A jump changes V alone. *)
Lemma conserve_is t st q : represents t st q -> exists to, V st <= to /\
  represents (conserve u t) (mk to (S st) (act st)) q /\ (to = V st \/ step st (mk to (S st) (act st))).
Proof.
  intros R. pose proof (r_now _ _ _ R) as HV. unfold conserve. rewrite HV.
  assert (Hsame : represents t (mk (V st) (S st) (act st)) q) by (destruct R; constructor; assumption).
  destruct (any_eligible (V st) (heads t)) eqn:E; [exists (V st); auto with zarith |].
  pose proof (any_eligible_is _ _ _ R E) as Hno. pose proof (first_start_is _ _ _ R) as Hf.
  destruct (first_start (heads t)) as [m |]; [| exists (V st); auto with zarith].
  destruct Hf as (k & Hk & -> & Hmin). fold (fu (V st)).
  assert (Hlate : V st < Rs st k).
  { apply Z.nle_gt. intros H. apply (Hno k). split; assumption. }
  pose proof (fu_le (V st)). pose proof (fu_gt (V st)).
  exists (Rs st k + (V st - fu (V st))). split; [lia |]. split.
  - destruct R. constructor; auto.
  - right. apply jump with (a := k); auto. lia.
Qed.

Lemma wake_is restarts t st q : represents t st q -> exists to, V st <= to /\
  represents (wake restarts u t) (mk to (S st) (act st)) q /\
  (to = V st \/ step st (mk to (S st) (act st)) /\ forall x, ~ active st x).
Proof.
  intros R. pose proof (r_now _ _ _ R) as HV. unfold wake. rewrite HV.
  assert (Hsame : represents t (mk (V st) (S st) (act st)) q) by (destruct R; constructor; assumption).
  destruct (restarts && (V st / u * u <? latest t)) eqn:E; [| exists (V st); auto with zarith].
  apply andb_true_iff in E. destruct E as [_ E]. apply Z.ltb_lt in E. fold (fu (V st)) in *.
  pose proof (first_start_is _ _ _ R) as Hno. destruct (first_start (heads t)); [exists (V st); auto with zarith |].
  pose proof (fu_le (V st)). exists (latest t + (V st - fu (V st))). split; [lia |]. split.
  - destruct R. constructor; auto.
  - right. split; [apply restart; [exact Hno | lia] | exact Hno].
Qed.

Lemma in_change j f hs e : In e (change j f hs) <->
  exists e0, In e0 hs /\ e = (if fst e0 =? j then (fst e0, (fst (snd e0), f (snd (snd e0)))) else e0).
Proof. unfold change. rewrite in_map_iff. split; intros (e0 & H1 & H2); exists e0; auto. Qed.

(** The rest of [represents] after flow [k] got another stamp and queue. *)
Lemma represents_with t st q k r s l_q V' last f :
  represents t st q -> In k flows -> Flows.find k (rows t) = Some r ->
  sound l_q -> (forall l, In l (items l_q) -> 0 < l <= mx k) ->
  let st' := mk V' (upd (S st) k s) (upd (act st) k (match items l_q with [] => false | _ => true end)) in
  (forall keys, (forall x j, Keys.In (x, j) keys <-> active st j /\ g j = g k /\ x = Rs st j) ->
     forall x j, Keys.In (x, j) (f keys) <-> active st' j /\ g j = g k /\ x = Rs st' j) ->
  represents {|
      now := V'; latest := last; rows := Flows.add k (with_stamp r s l_q) (rows t); heads := change (g k) f (heads t) |}
    st' (upd q k (items l_q)).
Proof.
  intros R Hk Hr Hs Hl st' Hf. destruct (r_rows _ _ _ R k Hk) as (r' & Hr' & Hrow). rewrite Hr in Hr'. injection Hr' as <-.
  destruct Hrow as (H1 & H2 & H3 & H4 & H5 & H6 & H7).
  constructor; simpl.
  - reflexivity.
  - intros j Hj. destruct (Nat.eq_dec j k) as [-> | Hjk].
    + exists (with_stamp r s l_q). rewrite FlowFacts.add_eq_o by reflexivity. split; [reflexivity |].
      unfold row_of, with_stamp; simpl. rewrite !upd_same. auto 10.
    + rewrite FlowFacts.add_neq_o by congruence. destruct (r_rows _ _ _ R j Hj) as (r' & Hr' & Hrow).
      exists r'. split; [assumption |]. unfold row_of in *; simpl. now rewrite !upd_other.
  - intros j Hj. rewrite FlowFacts.add_neq_o by (intros ->; contradiction). now apply (r_none _ _ _ R).
  - intros j. destruct (Nat.eq_dec j k) as [-> | Hjk].
    + rewrite !upd_same. destruct (items l_q); split; congruence.
    + rewrite !upd_other by assumption. apply (r_act _ _ _ R).
  - intros j l. destruct (Nat.eq_dec j k) as [-> | Hjk].
    + rewrite upd_same. apply Hl.
    + rewrite upd_other by assumption. apply (r_lengths _ _ _ R).
  - intros j sg keys Hin. apply in_change in Hin. destruct Hin as ([j0 [sg0 keys0]] & Hin & He). simpl in He.
    destruct (r_heads _ _ _ R _ _ _ Hin) as [Hsg Hkeys].
    destruct (Z.eqb_spec j0 (g k)) as [-> | Hjk]; injection He as -> -> ->.
    + split; [reflexivity || assumption |]. apply Hf. exact Hkeys.
    + split; [assumption |]. intros x y. rewrite Hkeys. unfold active, Rs; simpl.
      destruct (Nat.eq_dec y k) as [-> | Hy]; [intuition congruence | now rewrite !upd_other].
  - intros j Hj. destruct (r_all _ _ _ R j Hj) as (e & He & Hge).
    exists (if fst e =? g k then (fst e, (fst (snd e), f (snd (snd e)))) else e). split.
    + apply in_change. exists e. auto.
    + destruct (fst e =? g k); simpl; assumption.
Qed.

(** [st'] follows [st]; meanwhile the link served [l] bytes of flow [k]. *)
Definition follows st st' k l :=
  forall j st0 a b, busy j st0 st a b -> active st' j -> busy j st0 st' (a + l) (b + if Nat.eqb k j then l else 0).

Lemma follows_jump st st1 to k l :
  follows st st1 k l -> V st1 <= to -> to = V st1 \/ step st1 (mk to (S st1) (act st1)) ->
  follows st (mk to (S st1) (act st1)) k l.
Proof.
  intros H Hto [-> | Hs] j st0 a b Hb Hj.
  - specialize (H j st0 a b Hb Hj). destruct st1; exact H.
  - specialize (H j st0 a b Hb Hj).
    replace (a + l) with (a + l + 0) by lia. replace (b + _) with (b + (if Nat.eqb k j then l else 0) + 0) by lia.
    eapply b_step; [exact H | exact Hs | exact Hj | simpl; lia | simpl; lia].
Qed.

Lemma follows_reachable st1 to : reachable st1 -> to = V st1 \/ step st1 (mk to (S st1) (act st1)) ->
  reachable (mk to (S st1) (act st1)).
Proof. intros H [-> | Hs]; [destruct st1; exact H | eapply r_step; eassumption]. Qed.

Lemma becomes_backlogged t st q k l r :
  represents t st q -> reachable st -> In k flows -> Flows.find k (rows t) = Some r -> row_of st q k r -> q k = [] ->
  0 < l <= mx k ->
  let s := Z.max (stamp r) (lowest u (now t) (group r) (heads t)) in
  exists st', reachable st' /\ follows st st' k 0 /\
    represents (conserve u {|
      now := now t; latest := latest t; rows := Flows.add k (with_stamp r s (push l (queue r))) (rows t);
      heads := change (group r) (Keys.add (s / slot r * slot r, k)) (heads t) |}) st' (upd q k [l]).
Proof.
  intros R Hr Hk Hf (H1 & H2 & H3 & H4 & H5 & H6 & H7) Hq Hl. pose proof (r_now _ _ _ R) as HV.
  destruct (push_items l (queue r) H6) as [Hp Hps]. rewrite H7, Hq in Hp.
  assert (Hidle : act st k = false) by (apply not_true_iff_false; rewrite (r_act _ _ _ R), Hq; auto).
  rewrite H3, HV. intros s.
  assert (Hst : start st k s) by (unfold s; rewrite H5; now apply lowest_is with q).
  pose proof (represents_with t st q k r s (push l (queue r)) (V st) (latest t) (Keys.add (s / slot r * slot r, k)) R
    Hk Hf Hps) as R1. rewrite Hp in R1. simpl in R1.
  destruct (conserve_is _ _ _ (R1 ltac:(intros y [<- | []]; lia) ltac:(
    intros keys Hkeys x j; rewrite Keys.add_spec, key_eq, Hkeys, H2; unfold active, Rs; simpl;
    destruct (Nat.eq_dec j k) as [-> | Hj]; [rewrite !upd_same; fold (fl k s); intuition congruence
    | rewrite !upd_other by assumption; intuition congruence]))) as (to & Hto & R2 & Hstep).
  simpl in *.
  set (st1 := mk (V st) (upd (S st) k s) (upd (act st) k true)) in *.
  assert (Hs1 : step st st1) by (apply Qfq.arrive; assumption).
  exists (mk to (S st1) (act st1)). split; [| split; [| exact R2]].
  - apply follows_reachable; [eapply r_step; eassumption | exact Hstep].
  - apply follows_jump; [| exact Hto | exact Hstep]. intros j st0 a b Hb Hj.
    assert (Hjk : j <> k) by (intros ->; pose proof (busy_active _ _ _ _ _ Hb) as [_ Ha]; congruence).
    eapply b_step; [exact Hb | exact Hs1 | exact Hj | simpl; lia |]. simpl. rewrite upd_other by assumption.
    destruct (Nat.eqb k j); lia.
Qed.

Theorem arrive_sound restarts t st q k l t' :
  represents t st q -> reachable st -> arrive restarts u t k l = inl t' ->
  exists st', reachable st' /\ represents t' st' (upd q k (q k ++ [l])) /\ follows st st' k 0.
Proof.
  intros R Hr. unfold arrive. destruct (in_dec Nat.eq_dec k flows) as [Hk | Hk].
  2: { rewrite (r_none _ _ _ R) by assumption. discriminate. }
  destruct (r_rows _ _ _ R k Hk) as (r & Hf & Hrow). rewrite Hf.
  destruct (_ && _) eqn:Hl; [| discriminate]. apply andb_true_iff in Hl. rewrite Z.ltb_lt, Z.leb_le in Hl.
  pose proof Hrow as (H1 & H2 & H3 & H4 & H5 & H6 & H7). rewrite H4 in Hl.
  destruct (push_items l (queue r) H6) as [Hp Hps]. pose proof (empty_items _ H6) as Hempty. rewrite H7 in *.
  destruct (fst (queue r)) as [| first rest] eqn:Efirst; intros [= <-].
  - (* it becomes backlogged *)
    assert (Hq : q k = []) by (apply Hempty; reflexivity).
    destruct (wake_is restarts t st q R) as (since & Hsince & Rw & Hwake).
    assert (Hrows : rows (wake restarts u t) = rows t).
    { unfold wake. destruct (_ && _); [| reflexivity]. destruct (first_start _); reflexivity. }
    assert (Hr0 : reachable (mk since (S st) (act st))).
    { destruct Hwake as [-> | [Hs _]]; [now destruct st | eapply r_step; eassumption]. }
    destruct (becomes_backlogged _ _ _ k l r Rw Hr0 Hk ltac:(now rewrite Hrows) Hrow Hq Hl) as (st' & Hr' & Hfollows & R').
    exists st'. rewrite Hrows in R'. rewrite Hrows, Hq. split; [assumption | split; [exact R' |]].
    intros j before a b Hb Hj. destruct Hwake as [-> | [_ Hno]].
    + apply Hfollows; [now destruct st | assumption].
    + exfalso. exact (Hno j (busy_active _ _ _ _ _ Hb)).
  - (* it was *)
    exists st. split; [assumption |]. split.
    2: { intros j st0 a b Hb _. replace (a + 0) with a by lia. replace (b + _) with b by (destruct (Nat.eqb k j); lia). exact Hb. }
    assert (Hq : q k <> []) by (intros E; apply Hempty in E; discriminate).
    constructor; simpl; try apply R.
    + intros j Hj. destruct (Nat.eq_dec j k) as [-> | Hjk].
      * eexists. rewrite FlowFacts.add_eq_o by reflexivity. split; [reflexivity |].
        unfold row_of, with_queue; simpl. rewrite upd_same. auto 10.
      * rewrite FlowFacts.add_neq_o by congruence. destruct (r_rows _ _ _ R j Hj) as (r' & Hr' & Hrow').
        exists r'. split; [assumption |]. unfold row_of in *. now rewrite upd_other.
    + intros j Hj. rewrite FlowFacts.add_neq_o by (intros ->; contradiction). now apply (r_none _ _ _ R).
    + intros j. destruct (Nat.eq_dec j k) as [-> | Hjk]; [rewrite upd_same | rewrite upd_other by assumption; apply (r_act _ _ _ R)].
      rewrite (r_act _ _ _ R). split; intros _; [destruct (q k); discriminate | assumption].
    + intros j y. destruct (Nat.eq_dec j k) as [-> | Hjk]; [rewrite upd_same | rewrite upd_other by assumption; apply (r_lengths _ _ _ R)].
      rewrite in_app_iff. intros [Hy | [<- | []]]; [now apply (r_lengths _ _ _ R) | lia].
Qed.

Theorem depart_sound t st q k l t' :
  represents t st q -> reachable st -> depart v u t k l = inl t' ->
  elig st k /\ (forall x, elig st x -> Rf st k <= Rf st x) /\
  exists st' rest, q k = l :: rest /\ reachable st' /\ represents t' st' (upd q k rest) /\ follows st st' k l.
Proof.
  intros R Hr. unfold depart. destruct (in_dec Nat.eq_dec k flows) as [Hk | Hk].
  2: { rewrite (r_none _ _ _ R) by assumption. discriminate. }
  destruct (r_rows _ _ _ R k Hk) as (r & Hf & Hrow). rewrite Hf.
  destruct Hrow as (H1 & H2 & H3 & H4 & H5 & H6 & H7).
  destruct (pop (queue r)) as [[first rest] |] eqn:Hpop; [| discriminate].
  destruct (pop_items _ _ _ H6 Hpop) as [Hitems Hsound]. rewrite H7 in Hitems.
  destruct (Z.eqb_spec l first) as [<- | _]; [simpl | discriminate].
  pose proof (r_now _ _ _ R) as HV. rewrite HV. destruct (Z.ltb_spec (V st) (stamp r / slot r * slot r)) as [| Hle]; [discriminate |].
  pose proof (overtaken_is _ _ _ R (stamp r / slot r * slot r + 2 * slot r)) as Hmin.
  destruct (overtaken _ _ _) as [[j f'] |]; [discriminate |]. intros [= <-].
  assert (Hx : stamp r / slot r * slot r = Rs st k) by (unfold Rs, fl; now rewrite H5, H2).
  rewrite Hx in *. rewrite H2, H5, H1, H3.
  assert (Hact : act st k = true) by (apply (r_act _ _ _ R); rewrite Hitems; discriminate).
  assert (Hlen : 0 < l <= mx k) by (apply (r_lengths _ _ _ R); rewrite Hitems; now left).
  set (s := S st k + l * c k).
  pose proof (empty_items _ Hsound) as Hempty.
  set (more := match items rest with [] => false | _ => true end).
  set (st1 := mk (V st + l * v) (upd (S st) k s) (upd (act st) k more)).
  assert (He : elig st k) by (split; [split |]; assumption).
  rewrite H2 in Hmin. fold (Rf st k) in Hmin.
  assert (Hs1 : step st st1) by (apply serve; auto; lia).
  split; [exact He | split; [exact Hmin |]].
  pose proof (represents_with t st q k r s rest (V st + l * v) (Z.max (latest t) s) (fun keys =>
    match fst rest with [] => Keys.remove (Rs st k, k) keys
    | _ => Keys.add (s / sigma k * sigma k, k) (Keys.remove (Rs st k, k) keys) end) R Hk Hf Hsound) as R1.
  simpl in R1. fold more in R1.
  destruct (conserve_is _ _ _ (R1 ltac:(intros y Hy; apply (r_lengths _ _ _ R); rewrite Hitems; now right) ltac:(
    intros keys Hkeys x j;
    assert (Hmore : match fst rest with [] => more = false | _ => more = true end)
      by (unfold more; destruct (fst rest); destruct (items rest); intuition congruence);
    destruct (fst rest); rewrite Hmore;
    rewrite ?Keys.add_spec, Keys.remove_spec, !key_eq, Hkeys; unfold active, Rs; simpl;
    (destruct (Nat.eq_dec j k) as [-> | Hj]; [rewrite !upd_same; fold (fl k s); intuition congruence
      | rewrite !upd_other by assumption; intuition congruence])))) as (to & Hto & R2 & Hstep).
  simpl in *. fold st1 in R2, Hstep, Hto.
  exists (mk to (S st1) (act st1)), (items rest). split; [assumption |]. split; [| split; [exact R2 |]].
  - apply follows_reachable; [eapply r_step; eassumption | exact Hstep].
  - apply follows_jump; [| exact Hto | exact Hstep]. intros j st0 a b Hb Hj.
    eapply b_step; [exact Hb | exact Hs1 | exact Hj | simpl; lia |]. simpl.
    destruct (Nat.eqb_spec k j) as [-> | Hjk]; [rewrite upd_same; unfold s; lia | rewrite upd_other by congruence; lia].
Qed.

(** A refused departure is no step of the model: the flow is not eligible, or an eligible one finishes earlier. *)
Theorem refused_is_no_service t st q k l why :
  represents t st q -> depart v u t k l = inr why ->
  match why with
  | Not_eligible _ _ => ~ elig st k
  | Overtakes j _ _ => elig st j /\ Rf st j < Rf st k
  | Other_length first => exists rest, q k = first :: rest /\ first <> l
  | No_packet => q k = []
  | No_flow => ~ In k flows
  | Bad_length _ => False
  end.
Proof.
  intros R. unfold depart. destruct (in_dec Nat.eq_dec k flows) as [Hk | Hk].
  2: { rewrite (r_none _ _ _ R) by assumption. now intros [= <-]. }
  destruct (r_rows _ _ _ R k Hk) as (r & Hf & Hrow). rewrite Hf.
  destruct Hrow as (H1 & H2 & H3 & H4 & H5 & H6 & H7).
  destruct (pop (queue r)) as [[first rest] |] eqn:Hpop.
  2: { intros [= <-]. rewrite <- H7. apply empty_items; [assumption |]. unfold pop in Hpop.
       destruct (fst (queue r)) as [| ? []]; congruence. }
  destruct (pop_items _ _ _ H6 Hpop) as [Hitems Hsound]. rewrite H7 in Hitems.
  destruct (Z.eqb_spec l first) as [<- | Hl]; simpl; [| intros [= <-]; eauto].
  pose proof (r_now _ _ _ R) as HV. rewrite HV.
  assert (Hx : stamp r / slot r * slot r = Rs st k) by (unfold Rs, fl; now rewrite H5, H2).
  rewrite Hx. destruct (Z.ltb_spec (V st) (Rs st k)) as [Hlt | Hle].
  - intros [= <-]. intros [_ H]. lia.
  - pose proof (overtaken_is _ _ _ R (Rs st k + 2 * slot r)) as Hmin. rewrite H2 in *.
    destruct (overtaken _ _ _) as [[j f'] |]; [| discriminate]. intros [= <-]. destruct Hmin as (He & -> & Hfin).
    split; [assumption | exact Hfin].
Qed.

End QfqTrace.
