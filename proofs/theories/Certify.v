(** Certificates for traces of QFQ: from the configuration of a link and a list of events to the theorems. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Import QfqService QfqTrace.
Import ListNotations.
Open Scope Z_scope.

(** A flow: weight, longest packet, virtual time of a byte, and group, whose slot is [2 ^ of_group]. *)
Record flow := { weight : Z; of_longest : Z; of_cost : Z; of_group : Z }.

(** The progress of V per byte; V is read in multiples of [2 ^ bits]; a byte at weight 1 is [scale]; whether V passes the
    last finish of all flows as the link becomes busy. *)
Record clock := { pace : Z; bits : Z; scale : Z; restarts : bool }.

Inductive event := Arrival (k : nat) (l : Z) | Departure (k : nat) (l : Z).

(** * Definitions that the theorems speak of *)

(** The lengths of the packets in each queue after some events. *)
Definition after (q : nat -> list Z) e :=
  match e with
  | Arrival k l => upd q k (q k ++ [l])
  | Departure k _ => upd q k (tl (q k))
  end.
Definition backlog es := fold_left after es (fun _ => []).

(** Bytes served: of all flows, and of one. *)
Definition served e := match e with Departure _ l => l | Arrival _ _ => 0 end.
Definition served_of k e := match e with Departure j l => if Nat.eqb j k then l else 0 | Arrival _ _ => 0 end.
Definition total (f : event -> Z) es := fold_right (fun e acc => f e + acc) 0 es.

Definition outside cl := {| weight := 1; of_longest := 0; of_cost := scale cl; of_group := bits cl |}.
Definition flow_at cl fs k := nth k fs (outside cl).

Definition link cl fs : config := {|
  flows := seq 0 (length fs);
  c := fun k => of_cost (flow_at cl fs k);
  g := fun k => of_group (flow_at cl fs k);
  mx := fun k => of_longest (flow_at cl fs k);
  w := fun k => weight (flow_at cl fs k);
  v := pace cl;
  L := fold_right (fun f acc => Z.max (of_longest f) acc) 0 fs;
  u := 2 ^ bits cl;
  W := fold_right (fun f acc => weight f + acc) 0 fs;
  K := scale cl
|}.

(** * The program *)

Definition good_flow cl f :=
  (0 <=? weight f) && (0 <=? of_longest f) && (scale cl <=? weight f * of_cost f) && (pace cl <=? of_cost f)
  && (of_longest f * of_cost f <=? 2 ^ of_group f) && (bits cl <=? of_group f).

Definition good cl fs :=
  (0 <? pace cl) && (0 <=? bits cl) && (0 <? fold_right (fun f acc => weight f + acc) 0 fs)
  && (fold_right (fun f acc => weight f + acc) 0 fs * pace cl <=? scale cl) && forallb (good_flow cl) fs.

Definition row_for f :=
  {| cost := of_cost f; slot := 2 ^ of_group f; group := of_group f; longest := of_longest f; stamp := 0;
     queue := ([], []) |}.

Fixpoint rows_from (k : nat) fs : Flows.t row :=
  match fs with [] => Flows.empty row | f :: fs => Flows.add k (row_for f) (rows_from (k + 1)%nat fs) end.

(** The table before the first event, if the configuration meets the assumptions of the theorems. *)
Definition initial cl fs : option table :=
  if good cl fs then Some {|
    now := 0;
    latest := 0;
    rows := rows_from 0 fs;
    heads := map (fun j => (j, (2 ^ j, Keys.empty))) (List.nodup Z.eq_dec (map of_group fs))
  |} else None.

Definition unit_of cl := 2 ^ bits cl.

Definition next (pace unit : Z) restarts t e :=
  match e with Arrival k l => arrive restarts unit t k l | Departure k l => depart pace unit t k l end.

Fixpoint accept cl t es :=
  match es with
  | [] => Some t
  | e :: es => match next (pace cl) (unit_of cl) (restarts cl) t e with inl t => accept cl t es | inr _ => None end
  end.

(** The arithmetic of Fairlane, from weights and longest packets: crates/core/src/sched/clock.rs and groups.rs. *)
Definition fairlane (terms : list (Z * Z)) :=
  let sum := fold_right (fun t acc => fst t + acc) 0 terms in
  let most := fold_right (fun t acc => Z.max (snd t) acc) 0 terms in
  let inverse w := (2 ^ 40 + w - 1) / w in
  let floor := Z.max 1 (Z.log2_up (most * 2 ^ 40 / sum + 1) - 5) in
  ({| pace := (2 ^ 64 - 1) / sum; bits := 24; scale := 2 ^ 64; restarts := true |},
   map (fun t => {| weight := fst t; of_longest := snd t; of_cost := inverse (fst t) * 2 ^ 24;
                    of_group := Z.max (Z.log2_up (snd t * inverse (fst t))) floor + 24 |}) terms).

(** * What acceptance implies *)

Lemma good_flow_spec cl f : good_flow cl f = true <->
  0 <= weight f /\ 0 <= of_longest f /\ scale cl <= weight f * of_cost f /\ pace cl <= of_cost f /\
  of_longest f * of_cost f <= 2 ^ of_group f /\ bits cl <= of_group f.
Proof. unfold good_flow. rewrite !andb_true_iff, !Z.leb_le. tauto. Qed.

Lemma longest_of_all cl fs k :
  of_longest (flow_at cl fs k) <= fold_right (fun f acc => Z.max (of_longest f) acc) 0 fs.
Proof.
  unfold flow_at. revert k. induction fs as [| f fs IH]; intros [| k]; simpl; try lia. specialize (IH k). lia.
Qed.

Section Good.
Variables (cl : clock) (fs : list flow).
Hypothesis is_good : good cl fs = true.
Let sum_of := fold_right (fun f acc => weight f + acc) 0 fs.

Lemma good_spec : 0 < pace cl /\ 0 <= bits cl /\ 0 < sum_of /\ sum_of * pace cl <= scale cl /\
  forall k, good_flow cl (flow_at cl fs k) = true.
Proof.
  pose proof is_good as H. unfold good in H. fold sum_of in H. rewrite !andb_true_iff, !Z.ltb_lt, !Z.leb_le in H.
  destruct H as [[[[H1 H2] H3] H4] H5]. repeat split; auto. intros k. unfold flow_at.
  destruct (nth_in_or_default k fs (outside cl)) as [Hin | ->].
  - rewrite forallb_forall in H5. now apply H5.
  - apply good_flow_spec. simpl. assert (0 < 2 ^ bits cl) by (apply Z.pow_pos_nonneg; lia). nia.
Qed.

Lemma flow_is k : 0 < pace cl /\ 0 <= bits cl /\
  0 <= weight (flow_at cl fs k) /\ 0 <= of_longest (flow_at cl fs k) /\
  scale cl <= weight (flow_at cl fs k) * of_cost (flow_at cl fs k) /\ pace cl <= of_cost (flow_at cl fs k) /\
  of_longest (flow_at cl fs k) * of_cost (flow_at cl fs k) <= 2 ^ of_group (flow_at cl fs k) /\
  bits cl <= of_group (flow_at cl fs k).
Proof. destruct good_spec as (H1 & H2 & _ & _ & H). specialize (H k). apply good_flow_spec in H. tauto. Qed.

Instance link_well_formed : well_formed (link cl fs).
Proof.
  constructor; simpl.
  - intros k. pose proof (flow_is k). lia.
  - intros k. pose proof (flow_is k). lia.
  - apply good_spec.
  - intros k. apply longest_of_all.
  - intros k. apply flow_is.
  - apply Z.pow_pos_nonneg; [lia | apply good_spec].
  - intros k. pose proof (flow_is k). exists (2 ^ (of_group (flow_at cl fs k) - bits cl)).
    rewrite <- Z.pow_add_r by lia. f_equal. lia.
Qed.

Instance link_fair : fair (link cl fs).
Proof.
  constructor; simpl.
  - intros k. apply (flow_is k).
  - apply good_spec.
  - intros k. apply (flow_is k).
  - apply good_spec.
  - intros k. apply (flow_is k).
  - intros k. apply (flow_is k).
  - pose proof (longest_of_all cl fs 0). pose proof (flow_is 0). lia.
  - apply seq_NoDup.
  - assert (H : forall l k f, (forall i, (i < length l)%nat -> f (k + i)%nat = weight (nth i l (outside cl))) ->
      sum f (seq k (length l)) = fold_right (fun f acc => weight f + acc) 0 l).
    { induction l as [| x l IH]; intros k f Hf; simpl; [reflexivity |].
      pose proof (Hf 0%nat ltac:(simpl; lia)) as H0. rewrite Nat.add_0_r in H0. simpl in H0. rewrite H0. f_equal.
      apply IH. intros i Hi. specialize (Hf (i + 1)%nat ltac:(simpl; lia)). rewrite Nat.add_1_r in Hf. simpl in Hf.
      rewrite <- Hf. f_equal. lia. }
    rewrite H; [lia |]. intros i _. reflexivity.
Qed.

Lemma rows_are k fs' j : Flows.find j (rows_from k fs') =
  if (k <=? j)%nat then option_map row_for (nth_error fs' (j - k)) else None.
Proof.
  revert k. induction fs' as [| f l IH]; intros k; simpl.
  - rewrite FlowFacts.empty_o. destruct (k <=? j)%nat; [destruct (j - k)%nat |]; reflexivity.
  - destruct (Nat.eq_dec k j) as [-> | Hk].
    + rewrite FlowFacts.add_eq_o by reflexivity. rewrite Nat.leb_refl, Nat.sub_diag. reflexivity.
    + rewrite FlowFacts.add_neq_o by congruence. rewrite IH.
      destruct (Nat.leb_spec (k + 1) j); destruct (Nat.leb_spec k j); try lia; [| reflexivity].
      destruct (j - k)%nat as [| i] eqn:E; [lia |]. simpl. do 2 f_equal. lia.
Qed.

Lemma initial_represents t : initial cl fs = Some t -> represents (C := link cl fs) t init (fun _ => []).
Proof.
  unfold initial. rewrite is_good. intros [= <-]. constructor; simpl.
  - reflexivity.
  - intros k Hk. apply in_seq in Hk. rewrite rows_are. simpl. rewrite Nat.sub_0_r.
    destruct (nth_error fs k) as [f |] eqn:E; [| apply nth_error_None in E; lia]. exists (row_for f).
    split; [reflexivity |]. assert (Hf : flow_at cl fs k = f) by (unfold flow_at; now apply nth_error_nth).
    unfold row_of, row_for, sigma; simpl. rewrite Hf. repeat split.
  - intros k Hk. rewrite rows_are. simpl. rewrite Nat.sub_0_r. rewrite in_seq in Hk.
    assert (E : nth_error fs k = None) by (apply nth_error_None; lia). now rewrite E.
  - intros k. split; [discriminate | congruence].
  - intros k l [].
  - intros j sg keys Hin. apply in_map_iff in Hin. destruct Hin as (j' & [= -> <- <-] & _). split; [reflexivity |].
    intros x k. split; [| intros [[_ H] _]; discriminate]. intros H. now apply Keys.empty_spec in H.
  - intros k Hk. apply in_seq in Hk. set (j := of_group (flow_at cl fs k)). exists (j, (2 ^ j, Keys.empty)).
    split; [| reflexivity]. apply in_map_iff. exists j. split; [reflexivity |]. apply nodup_In, in_map, nth_In. lia.
Qed.

(** A flow that is backlogged after each prefix of the events is busy throughout. *)
Lemma accept_sound es : forall t st q t',
  represents (C := link cl fs) t st q -> reachable (C := link cl fs) st -> accept cl t es = Some t' ->
  exists st', reachable (C := link cl fs) st' /\ represents (C := link cl fs) t' st' (fold_left after es q) /\
    forall k, In k (flows (config := link cl fs)) -> (forall p r, es = p ++ r -> fold_left after p q k <> []) ->
      busy (C := link cl fs) k st st' (total served es) (total (served_of k) es).
Proof.
  induction es as [| e es IH]; intros t st q t' R Hr; simpl.
  - intros [= <-]. exists st. split; [assumption | split; [assumption |]]. intros k Hk H. apply b_refl. split; [assumption |].
    apply (r_act _ _ _ R). now apply (H [] []).
  - destruct (next _ _ _ t e) as [t1 |] eqn:E; [| discriminate]. intros Ha.
    assert (H : exists st1, reachable (C := link cl fs) st1 /\ represents (C := link cl fs) t1 st1 (after q e) /\
      exists k l, follows (C := link cl fs) st st1 k l /\ served e = l /\
        forall j, served_of j e = if Nat.eqb k j then l else 0).
    { destruct e as [k l | k l]; simpl in E.
      - destruct (arrive_sound (C := link cl fs) _ _ _ _ _ _ _ R Hr E) as (st1 & H1 & H2 & H3).
        exists st1. split; [assumption | split; [assumption |]]. exists k, 0. repeat split; auto.
        intros j. simpl. now destruct (Nat.eqb k j).
      - destruct (depart_sound (C := link cl fs) _ _ _ _ _ _ R Hr E) as (_ & _ & st1 & rest & Hq & H1 & H2 & H3).
        exists st1. split; [assumption |]. simpl. rewrite Hq. split; [assumption |]. exists k, l. auto. }
    destruct H as (st1 & Hr1 & R1 & k & l & Hf & Hl & Hlj).
    destruct (IH _ _ _ _ R1 Hr1 Ha) as (st' & Hr' & R' & Hbusy). exists st'. split; [assumption | split; [assumption |]].
    intros j Hj Hp.
    assert (Hb1 : busy (C := link cl fs) j st st1 (0 + l) (0 + if Nat.eqb k j then l else 0)).
    { apply Hf; [apply b_refl; split; [assumption | apply (r_act _ _ _ R); now apply (Hp [] (e :: es))] |].
      split; [assumption |]. apply (r_act _ _ _ R1). now apply (Hp [e] es). }
    specialize (Hbusy j Hj ltac:(intros p r ->; now apply (Hp (e :: p) r))).
    rewrite Hl, Hlj. exact (busy_trans _ _ _ _ _ _ _ _ Hb1 Hbusy).
Qed.
End Good.

Lemma accept_app cl es1 es2 : forall t, accept cl t (es1 ++ es2) =
  match accept cl t es1 with Some t => accept cl t es2 | None => None end.
Proof. induction es1 as [| e es1 IH]; intros t; simpl; [reflexivity |]. destruct (next _ _ _ t e); auto. Qed.

(** The order of service: at each departure the flow was eligible, and no eligible flow had an earlier finish, in the
    state of QFQ after the events before. *)
Theorem order_certified cl fs t es k l rest t' :
  initial cl fs = Some t -> accept cl t (es ++ Departure k l :: rest) = Some t' ->
  exists st, reachable (C := link cl fs) st /\ elig (C := link cl fs) st k /\
    (forall x, elig (C := link cl fs) st x -> Rf (C := link cl fs) st k <= Rf (C := link cl fs) st x) /\
    (forall x, act st x = true <-> backlog es x <> []) /\ exists more, backlog es k = l :: more.
Proof.
  intros Hb Ha. assert (G : good cl fs = true) by (unfold initial in Hb; destruct (good cl fs); congruence).
  pose proof (link_well_formed cl fs G) as ok.
  rewrite accept_app in Ha. destruct (accept cl t es) as [t1 |] eqn:E; [| discriminate]. simpl in Ha.
  destruct (accept_sound cl fs G es t init _ t1 (initial_represents cl fs G t Hb) r_init E) as (st & Hr & R & _).
  destruct (depart _ _ t1 k l) as [t2 |] eqn:Ed; [| discriminate].
  destruct (depart_sound (C := link cl fs) _ _ _ _ _ _ R Hr Ed) as (He & Hmin & _ & more & Hq & _).
  exists st. repeat split; try apply He; auto; try apply (r_act _ _ _ R). exists more. exact Hq.
Qed.

(** The bound: over any interval in which flow [k] is backlogged, with a packet of length [l] at its head at the end. *)
Theorem bound_certified cl fs t es1 es2 t' k l more :
  initial cl fs = Some t -> accept cl t (es1 ++ es2) = Some t' ->
  (forall p r, es2 = p ++ r -> backlog (es1 ++ p) k <> []) -> backlog (es1 ++ es2) k = l :: more ->
  total served es2 * pace cl <
    total (served_of k) es2 * of_cost (flow_at cl fs k) + 3 * 2 ^ of_group (flow_at cl fs k)
    + of_longest (flow_at cl fs k) * (of_cost (flow_at cl fs k) - pace cl)
    + (L (config := link cl fs) - l) * pace cl + 2 ^ bits cl.
Proof.
  intros Hb Ha Hback Hl. assert (G : good cl fs = true) by (unfold initial in Hb; destruct (good cl fs); congruence).
  pose proof (link_well_formed cl fs G) as ok. pose proof (link_fair cl fs G) as rates.
  rewrite accept_app in Ha. destruct (accept cl t es1) as [t1 |] eqn:E; [| discriminate].
  destruct (accept_sound cl fs G es1 t init _ t1 (initial_represents cl fs G t Hb) r_init E) as (st & Hr & R & _).
  destruct (accept_sound cl fs G es2 t1 st _ t' R Hr Ha) as (st' & Hr' & R' & Hbusy).
  assert (Hlen : 0 < l <= mx (config := link cl fs) k).
  { apply (r_lengths _ _ _ R'). rewrite <- fold_left_app. fold (backlog (es1 ++ es2)). rewrite Hl. now left. }
  assert (Hk : In k (flows (config := link cl fs))).
  { simpl. apply in_seq. destruct (Nat.lt_ge_cases k (length fs)); [lia | exfalso].
    simpl in Hlen. unfold flow_at in Hlen. rewrite nth_overflow in Hlen by assumption. simpl in Hlen. lia. }
  specialize (Hbusy k Hk). pose proof (work_over_share (C := link cl fs) k st st' _ _ l Hr (Hbusy ltac:(
    intros p r Hp; rewrite <- fold_left_app; apply (Hback p r Hp))) ltac:(lia) ltac:(lia)) as H.
  simpl in H. exact H.
Qed.
