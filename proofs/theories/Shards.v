(** The protocol of docs/internals/shards.md, for any number of shards, one access to shared memory a step, every
    interleaving (sequentially consistent; positions do not wrap, the count does not either).
    Theorems 1 and 2. *)
From Coq Require Import ZArith List Lia Bool.
Import ListNotations.
Open Scope Z_scope.

Section Shards.
Variable shards : list nat.
(** Lead; the largest advance of a shard's V by one batch, beta / phi. *)
Variables (B : Z) (D : nat -> Z).
Hypothesis B_nonneg : 0 <= B.
Hypothesis D_nonneg : forall s, 0 <= D s.

Inductive pc :=
| Out                                  (* idle, or aware that it was left out *)
| Entered                              (* has read the floor *)
| Shown                                (* has written its word *)
| Lift (f : Z)                         (* has counted up, and is to come in at f *)
| Ready                                (* has come in *)
| Scan (f c : Z) (todo : list nat) (m : Z)
| Near (f : Z).                        (* may take a batch: within the lead of f *)

Record state := mk {
  F : Z; cnt : Z;                      (* the floor's word *)
  W : nat -> Z; counts : nat -> bool;  (* a shard's word *)
  T : nat -> Z; at_ : nat -> pc        (* local to the shard *)
}.

Definition upd {A} (f : nat -> A) k x := fun j => if Nat.eqb j k then x else f j.

Inductive step : state -> state -> Prop :=
| enter st s : at_ st s = Out -> In s shards ->
    step st (mk (F st) (cnt st) (W st) (counts st) (upd (T st) s (Z.max (T st s) (F st))) (upd (at_ st) s Entered))
| show st s : at_ st s = Entered ->
    step st (mk (F st) (cnt st) (upd (W st) s (T st s)) (upd (counts st) s true) (T st) (upd (at_ st) s Shown))
| count st s : at_ st s = Shown ->
    step st (mk (F st) (cnt st + 1) (W st) (counts st) (T st)
      (upd (at_ st) s (if T st s <? F st then Lift (F st) else Ready)))
| lift st s f : at_ st s = Lift f ->
    step st (mk (F st) (cnt st) (if counts st s then upd (W st) s f else W st) (counts st) (upd (T st) s f)
      (upd (at_ st) s Ready))
| floor st s : at_ st s = Ready ->
    step st (mk (F st) (cnt st) (W st) (counts st) (T st)
      (upd (at_ st) s (if T st s <=? F st + B then Near (F st) else Scan (F st) (cnt st) shards (T st s))))
| look st s f c x todo m : at_ st s = Scan f c (x :: todo) m ->
    step st (mk (F st) (cnt st) (W st) (counts st) (T st)
      (upd (at_ st) s (Scan f c todo (if counts st x && negb (Nat.eqb x s) then Z.min m (W st x) else m))))
| raise st s f c m : at_ st s = Scan f c [] m -> f < m -> F st = f -> cnt st = c ->
    step st (mk m (cnt st) (W st) (counts st) (T st) (upd (at_ st) s (if T st s <=? m + B then Near m else Ready)))
| fail st s f c m : at_ st s = Scan f c [] m -> f < m -> F st <> f \/ cnt st <> c ->
    step st (mk (F st) (cnt st) (W st) (counts st) (T st) (upd (at_ st) s Ready))
| judge st s f c m : at_ st s = Scan f c [] m -> m <= f ->
    step st (mk (F st) (cnt st) (W st) (counts st) (T st) (upd (at_ st) s (if T st s <=? m + B then Near m else Ready)))
| publish st s f d : at_ st s = Near f -> 0 <= d <= D s ->
    step st (mk (F st) (cnt st) (if counts st s then upd (W st) s (T st s + d) else W st) (counts st)
      (upd (T st) s (T st s + d)) (upd (at_ st) s Ready))
| leave_out st s :
    step st (mk (F st) (cnt st) (W st) (upd (counts st) s false) (T st) (at_ st))
| notice st s : at_ st s = Ready -> counts st s = false ->
    step st (mk (F st) (cnt st) (W st) (counts st) (T st) (upd (at_ st) s Out))
| idle st s back : at_ st s = Ready -> 0 <= back ->
    step st (mk (F st) (cnt st) (upd (W st) s (T st s - back)) (upd (counts st) s false) (upd (T st) s (T st s - back))
      (upd (at_ st) s Out)).

Definition init := mk 0 0 (fun _ => 0) (fun _ => false) (fun _ => 0) (fun _ => Out).

Inductive reachable : state -> Prop :=
| r_init : reachable init
| r_step st st' : reachable st -> step st st' -> reachable st'.

(** Has counted up since it last came in. *)
Definition counted p := match p with Out | Entered | Shown => False | _ => True end.
Definition in_ p := match p with Ready | Scan _ _ _ _ | Near _ => True | _ => False end.

Record Inv st := {
  word : forall s, counts st s = true -> W st s = T st s;
  floor_below : forall s, counts st s = true -> in_ (at_ st s) -> F st <= W st s;
  lifting : forall s f, at_ st s = Lift f -> f <= F st /\ T st s < f /\ (counts st s = true -> F st = f);
  scanning : forall s f c todo m, at_ st s = Scan f c todo m ->
    f <= F st /\ c <= cnt st /\ m <= T st s /\
    (cnt st = c -> forall x, ~ In x todo -> counts st x = true -> counted (at_ st x) -> m <= W st x);
  near : forall s f, at_ st s = Near f -> f <= F st /\ T st s <= f + B;
  not_far : forall s, T st s <= F st + B + D s;
  known_out : forall s, at_ st s <> Out -> In s shards;
  clear_out : forall s, at_ st s = Out \/ at_ st s = Entered -> counts st s = false;
}.


Lemma Inv_init : Inv init.
Proof.
  split; simpl; intros; try discriminate; try contradiction; auto.
  pose proof (D_nonneg s). lia.
Qed.

Ltac facts Hi x :=
  pose proof (word _ Hi x); pose proof (floor_below _ Hi x); pose proof (not_far _ Hi x);
  pose proof (lifting _ Hi x); pose proof (scanning _ Hi x); pose proof (near _ Hi x); pose proof (clear_out _ Hi x);
  pose proof (known_out _ Hi x).

Ltac cases := repeat match goal with
  | H : context [Nat.eqb ?a ?b] |- _ => destruct (Nat.eqb_spec a b); subst; simpl in *
  | |- context [Nat.eqb ?a ?b] => destruct (Nat.eqb_spec a b); subst; simpl in *
  | H : context [if ?b then _ else _] |- _ => destruct b eqn:?; simpl in *
  | |- context [if ?b then _ else _] => destruct b eqn:?; simpl in *
  end.

Ltac use_pc := repeat match goal with
  | H : forall f, ?p = Lift f -> _, E : ?p = Lift ?f |- _ => specialize (H f E)
  | H : forall f c todo m, ?p = Scan f c todo m -> _, E : ?p = Scan ?f ?c ?todo ?m |- _ => specialize (H f c todo m E)
  | H : forall f, ?p = Near f -> _, E : ?p = Near ?f |- _ => specialize (H f E)
  | H : _ /\ _ |- _ => destruct H
  | H : ?p = true -> _, E : ?p = true |- _ => specialize (H E)
  | H : ?p = true, E : ?p = false |- _ => congruence
  | H : True -> _ |- _ => specialize (H I)
  end.


Ltac pcs := repeat match goal with
  | E : at_ ?st ?s = _, H : context [at_ ?st ?s] |- _ => lazymatch type of H with at_ st s = _ => fail | _ => rewrite E in H end
  | E : at_ ?st ?s = _ |- context [at_ ?st ?s] => rewrite E
  end.

Ltac inj := repeat match goal with
  | E : Scan _ _ _ _ = Scan _ _ _ _ |- _ => injection E as; subst
  | E : Near _ = Near _ |- _ => injection E as; subst
  | E : Lift _ = Lift _ |- _ => injection E as; subst
  | E : _ = _ \/ _ = _ |- _ => destruct E; try discriminate
  | E : _ /\ _ |- _ => destruct E
  | E : (_ <? _) = true |- _ => apply Z.ltb_lt in E
  | E : (_ <? _) = false |- _ => apply Z.ltb_ge in E
  | E : (_ <=? _) = true |- _ => apply Z.leb_le in E
  | E : (_ <=? _) = false |- _ => apply Z.leb_gt in E
  | E : _ && _ = true |- _ => apply andb_true_iff in E
  | E : andb _ _ = false |- _ => apply andb_false_iff in E
  | E : negb _ = true |- _ => apply negb_true_iff in E
  end.

Ltac auto1 := try congruence; try contradiction; try discriminate; try lia; auto;
  try (match goal with H : _ <> Out -> In ?s ?l |- In ?s ?l => apply H; congruence end).

(** A word that was read and counts is no lower than the least word read. *)
Ltac saw := match goal with
  | Hsc : cnt ?st = cnt ?st -> forall x, ~ In x ?todo -> _, Hz : ~ In ?z ?todo0 |- _ =>
      let Q := fresh in let HQ := fresh in
      assert (HQ : ~ In z todo) by (simpl in *; intuition congruence);
      pose proof (Hsc eq_refl z HQ) as Q;
      (match goal with E : counts st z = true |- _ => specialize (Q E) end);
      try (match goal with E : at_ st z = _ |- _ => rewrite E in Q; simpl in Q; specialize (Q I) end);
      try (match goal with E : counted (at_ st z) |- _ => specialize (Q E) end); lia
  end.

Lemma Inv_step st st' : Inv st -> step st st' -> Inv st'.
Proof.
  intros Hi Hs.
  inversion Hs as [s0 s Epc Hin | s0 s Epc | s0 s Epc | s0 s f Epc | s0 s Epc | s0 s f c x todo m Epc
    | s0 s f c m Epc Hf HF Hc | s0 s f c m Epc Hf Hn | s0 s f c m Epc Hf | s0 s f d Epc Hd | s0 s | s0 s Epc Hc
    | s0 s back Epc Hb]; subst; clear Hs;
    pose proof (D_nonneg s) as HD.
  all: facts Hi s; pcs; simpl in *; use_pc.
  all: split; simpl; unfold upd.
  all: intros y; facts Hi y; destruct (Nat.eqb_spec y s); subst; simpl in *; intros;
    cases; inj; use_pc; pcs; simpl in *; use_pc; auto1.
  (* what a scan has seen *)
  all: try (repeat split; auto1; intros Ec z Hz; facts Hi z; cases; inj; pcs; simpl in *; intros; use_pc; auto1).
  all: try (match goal with H : ?p = ?p \/ _ -> counts _ _ = false |- _ => specialize (H (or_introl eq_refl)); congruence end).
  all: try (exfalso; match goal with Hz : ~ In ?z shards, H : at_ _ ?z <> Out -> In ?z shards, Hc : counted (at_ _ ?z) |- _ =>
    apply Hz, H; let E := fresh in intros E; rewrite E in Hc; exact Hc end).
  all: try solve [saw].
  all: try solve [match goal with H : forall f0, Lift ?f = Lift f0 -> _ |- _ => pose proof (H f eq_refl) end; use_pc; saw].
  all: try solve [match goal with H : at_ _ ?s = Scan _ _ (?x :: _) _, Hz : ~ In ?z _ |- _ =>
    destruct (Nat.eq_dec z s); [subst; use_pc; lia |]; destruct (Nat.eq_dec z x); [subst; congruence || lia |]; saw end].
  all: try solve [match goal with H : at_ _ ?s = Scan _ _ [] _ , Hsc : _ = _ -> forall x, ~ False -> _ |- _ <= W _ ?y =>
    apply Hsc; auto; destruct (at_ _ y); simpl in *; auto; contradiction end].
  all: try solve [match goal with Hsc : _ = _ -> forall x, ~ (_ = x \/ In x ?t) -> _ |- _ <= W _ ?z =>
    apply (Hsc eq_refl z); [intros [E | E]; [subst; congruence | contradiction] | assumption | assumption] end].
  all: try solve [match goal with Hsc : _ = _ -> forall x, ~ (?x0 = x \/ In x ?t) -> _ |- Z.min _ _ <= W _ ?z =>
    destruct (Nat.eq_dec z x0) as [-> | Hne]; [lia |];
    assert (Q : ~ (x0 = z \/ In z t)) by (intros [E | E]; [congruence | contradiction]);
    specialize (Hsc eq_refl z Q); intuition lia end].
  (* the floor is raised *)
  - destruct (scanning _ Hi s _ _ _ _ Epc) as (_ & _ & _ & Hsc). apply (Hsc eq_refl); auto.
    destruct (at_ st y); simpl in *; auto.
  - destruct (scanning _ Hi s _ _ _ _ Epc) as (_ & _ & _ & Hsc). pose proof (word _ Hi y) as Hw.
    match goal with E : at_ st y = Lift _ |- _ => rename E into El end.
    repeat split; try lia. intros Hc.
    assert (m <= W st y) by (apply (Hsc eq_refl); auto; rewrite El; exact I). specialize (Hw Hc).
    match goal with E : counts st y = true -> _ = _ |- _ => specialize (E Hc) end. lia.
Qed.

Theorem invariant st : reachable st -> Inv st.
Proof. induction 1; [apply Inv_init | eapply Inv_step; eassumption]. Qed.

(** Theorem 1: a shard that counts and has come in is never below the floor. *)
Theorem theorem1 st s : reachable st -> counts st s = true -> in_ (at_ st s) -> F st <= W st s.
Proof. intros Hr. apply (floor_below _ (invariant _ Hr)). Qed.

(** The floor never falls. *)
Theorem floor_rises st st' : reachable st -> step st st' -> F st <= F st'.
Proof. intros Hr Hs. destruct Hs; simpl; lia. Qed.

(** Theorem 2. *)
Theorem theorem2 st i j :
  reachable st -> counts st i = true -> in_ (at_ st i) -> counts st j = true -> in_ (at_ st j) ->
  W st i - W st j <= B + D i.
Proof.
  intros Hr Hi Hi' Hj Hj'. pose proof (invariant _ Hr) as I. pose proof (not_far _ I i). pose proof (word _ I i Hi).
  pose proof (theorem1 _ j Hr Hj Hj'). lia.
Qed.

End Shards.
