(** SCHED+ over any of the algorithms of [Stamps], for every M: crates/core/src/sched/plus.rs.

    An aggregate [a] is a flow of [Stamps] with [m] members. Its longest packet is its budget of [m * ell] bytes; in it,
    [Drr] serves the members with quanta of [ell], their longest packet ([Plus::step], [Plus::advance]). A [send] of the
    aggregate is a packet of the flow at the head of its circle, so the work of the aggregate is that of its members.
    The bounds are [bounds::sched_plus] with Q = 0; [m * c a] is v / phi of the flow. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Import Sums Drr Stamps.
Import ListNotations.
Open Scope Z_scope.

(** * The round inside *)

Section Inside.
Variable members : list nat.
Hypothesis nodup : NoDup members.
Variable ell : Z.
Hypothesis ell_pos : 0 < ell.
Let q (_ : nat) := ell.
Let m := Z.of_nat (length members).
Notation drr_reachable := (Drr.reachable members q q).
Notation drr_run := (Drr.run members q q).

Lemma sum_const x l : sum (fun _ => x) l = Z.of_nat (length l) * x.
Proof. induction l as [| y l IH]; simpl length; simpl sum; [lia | rewrite IH; lia]. Qed.

Lemma members_turns k w x :
  In k members -> (forall j, In j members -> j <> k -> w j <= x) -> sum w members <= w k + (m - 1) * x.
Proof.
  intros Hk H. pose proof (sum_others w (fun _ => x) k members nodup Hk H) as Hs. rewrite sum_const in Hs. fold m in Hs. lia.
Qed.

Lemma one_member k : In k members -> 1 <= m.
Proof. intros H. unfold m. destruct members; [destruct H | simpl length; lia]. Qed.

(** Over any interval, the aggregate sends at most m times the work of the flow, and 3 (m - 1) L_k. *)
Theorem inside k st0 st t w :
  drr_reachable st0 -> In k members -> drr_run k st0 st t w -> sum w members <= m * w k + 3 * (m - 1) * ell.
Proof.
  intros Hr Hk H. destruct (own_turns members q q (fun _ => ell_pos) _ _ _ _ _ Hr H) as (e & He & Hh & Ht).
  pose proof (Drr.invariant members q q (fun _ => ell_pos) _
    (Drr.run_reachable members q q _ _ _ _ _ Hr H)) as Hi.
  pose proof (Drr.run_active members q q _ _ _ _ _ H) as [_ Hin].
  pose proof (i_most _ _ _ _ Hi k Hin). pose proof (i_head _ _ _ _ Hi k Hin). pose proof (one_member k Hk).
  assert (Ho : forall j, In j members -> j <> k -> w j <= w k + 3 * ell).
  { intros j Hj Hjk. pose proof (run_other_work members q q (fun _ => ell_pos) (fun _ => ell_pos) k j e _ _ _ _ Hr Hj Hjk H He Hh).
    unfold q in *. destruct (e =? 0); lia. }
  pose proof (members_turns k w _ Hk Ho). nia.
Qed.

(** And until a packet of [l] bytes is sent, where its length is known, 2 (m - 1) L_k. *)
Theorem inside_packet k st0 st t w l r :
  drr_reachable st0 -> In k members -> drr_run k st0 st t w ->
  ring st = k :: r -> Drr.hd st k <= d st k -> 0 < l <= Drr.hd st k ->
  sum w members + l <= m * (w k + l) + (m - 1) * (2 * ell + (Drr.hd st k - l)).
Proof.
  intros Hr Hk H Hring Hd Hl. destruct (own_turns members q q (fun _ => ell_pos) _ _ _ _ _ Hr H) as (e & He & Hh & Ht).
  pose proof (Drr.invariant members q q (fun _ => ell_pos) _
    (Drr.run_reachable members q q _ _ _ _ _ Hr H)) as Hi.
  pose proof (Drr.run_active members q q _ _ _ _ _ H) as [_ Hin].
  pose proof (i_most _ _ _ _ Hi k Hin). pose proof (one_member k Hk).
  assert (Ho : forall j, In j members -> j <> k -> w j <= w k + l + (2 * ell + (Drr.hd st k - l))).
  { intros j Hj Hjk. pose proof (run_other_work members q q (fun _ => ell_pos) (fun _ => ell_pos) k j e _ _ _ _ Hr Hj Hjk H He Hh).
    unfold q in *. destruct (e =? 0); lia. }
  pose proof (members_turns k w _ Hk Ho). nia.
Qed.
End Inside.

(** * The bounds *)

Section SchedPlus.

Variable aggregates : list nat.
Hypothesis nodup : NoDup aggregates.
(** Of each aggregate: members, longest packet of each of them. Costs and weights are those of the aggregate. *)
Variable members : nat -> list nat.
Variable ell : nat -> Z.
Variables c w : nat -> Z.
(** The longest budget, M L. *)
Variables v ML u W K : Z.
Hypothesis members_nodup : forall a, NoDup (members a).
Hypothesis members_some : forall a, members a <> [].
Hypothesis ell_pos : forall a, 0 < ell a.
Let m a := Z.of_nat (length (members a)).
Let budget a := m a * ell a.
Hypothesis budget_most : forall a, budget a <= ML.
Hypothesis v_pos : 0 < v.
Hypothesis u_pos : 0 < u.
Hypothesis W_pos : 0 < W.
Hypothesis c_over_v : forall a, v <= c a.
Hypothesis w_nonneg : forall a, 0 <= w a.
Hypothesis weights : sum w aggregates <= W.
Hypothesis cost_up : forall a, K <= w a * c a.
Hypothesis clock_down : W * v <= K.
Variables (rs : nat -> Z -> Z) (rf : nat -> Z -> Z -> Z) (early late : nat -> Z).
Hypothesis rs_before : forall a s, rs a s <= s.
Hypothesis rs_early : forall a s, s <= rs a s + early a.
Hypothesis rf_covers : forall a s h, 0 < h <= budget a -> s + h * c a <= rf a s h.
Hypothesis rf_grows : forall a s h s' h', s <= s' -> s + h * c a <= s' + h' * c a -> rf a s h <= rf a s' h'.

Lemma m_pos a : 1 <= m a.
Proof. unfold m. pose proof (members_some a). destruct (members a); [contradiction | simpl length; lia]. Qed.

Lemma budget_pos a : 0 < budget a <= ML.
Proof. pose proof (m_pos a). pose proof (ell_pos a). pose proof (budget_most a). unfold budget in *. nia. Qed.

Notation reachable := (Stamps.reachable aggregates c budget v u rs rf).
Notation run := (Stamps.run aggregates c budget v u rs rf).
Notation step := (Stamps.step aggregates c budget v u rs rf).
Notation inner_reachable a := (Drr.reachable (members a) (fun _ => ell a) (fun _ => ell a)).
Notation inner_run a := (Drr.run (members a) (fun _ => ell a) (fun _ => ell a)).

(** One interval, of the aggregate [a] among all, and of its flow [k] inside. *)
Record interval a k st0 st t in0 inn wk : Prop := {
  p_reachable : reachable st0;
  p_run : run a st0 st t (sum wk (members a));
  p_inner_reachable : inner_reachable a in0;
  p_member : In k (members a);
  p_inner : exists turns, inner_run a k in0 inn turns wk }.

Lemma p_inside a k st0 st t in0 inn wk :
  interval a k st0 st t in0 inn wk -> sum wk (members a) <= m a * wk k + 3 * (m a - 1) * ell a.
Proof. intros [_ _ Hr Hk [turns H]]. eapply inside; eauto. Qed.

(** Its B-WFI, where DS+ counts from F (WF2Q++, GFQ+): (5 - 3 / m) L_k / phi + DS- + DS+ + M L - 2 m L_k. *)
Theorem plus_b_wfi_after_finish a k st0 st t in0 inn wk :
  (forall a s h, rf a s h <= s + h * c a + late a) ->
  interval a k st0 st t in0 inn wk ->
  t * v <= wk k * (m a * c a) + 3 * (m a - 1) * ell a * c a + early a + late a + 2 * budget a * (c a - v) + ML * v + u.
Proof.
  intros Hlate H. pose proof (p_inside _ _ _ _ _ _ _ _ H) as Hin. pose proof (c_over_v a).
  pose proof (b_wfi_after_finish aggregates nodup c w budget v ML u W K v_pos u_pos W_pos c_over_v w_nonneg budget_pos weights
    cost_up clock_down rs rf early rs_before rs_early rf_covers rf_grows late Hlate a st0 st t _
    (p_reachable _ _ _ _ _ _ _ _ H) (p_run _ _ _ _ _ _ _ _ H)) as Hb.
  assert (sum wk (members a) * c a <= (m a * wk k + 3 * (m a - 1) * ell a) * c a) by (apply Z.mul_le_mono_nonneg_r; lia).
  lia.
Qed.

(** Where DS+ counts from S (QFQ+, S-KPS+): (4 - 3 / m) L_k / phi + DS- + DS+ + M L - m L_k. *)
Theorem plus_b_wfi_after_start a k st0 st t in0 inn wk :
  (forall a s h, rf a s h <= s + late a) ->
  interval a k st0 st t in0 inn wk ->
  t * v <= wk k * (m a * c a) + 3 * (m a - 1) * ell a * c a + early a + late a + budget a * (c a - v) + ML * v + u.
Proof.
  intros Hlate H. pose proof (p_inside _ _ _ _ _ _ _ _ H) as Hin. pose proof (c_over_v a).
  pose proof (b_wfi_after_start aggregates nodup c w budget v ML u W K v_pos u_pos W_pos c_over_v w_nonneg budget_pos weights
    cost_up clock_down rs rf early rs_before rs_early rf_covers rf_grows late Hlate a st0 st t _
    (p_reachable _ _ _ _ _ _ _ _ H) (p_run _ _ _ _ _ _ _ _ H)) as Hb.
  assert (sum wk (members a) * c a <= (m a * wk k + 3 * (m a - 1) * ell a) * c a) by (apply Z.mul_le_mono_nonneg_r; lia).
  lia.
Qed.

(** Both are within Theorem 2 of the QFQ+ paper, (5 - 1 / m) L_k / phi + DS- + DS+ + M L - m L_k. *)
Theorem plus_b_wfi a k st0 st t in0 inn wk :
  (forall a s h, rf a s h <= s + h * c a + late a) \/ (forall a s h, rf a s h <= s + late a) ->
  interval a k st0 st t in0 inn wk ->
  t * v <= wk k * (m a * c a) + (5 * m a - 1) * ell a * c a + early a + late a + ML * v - budget a * v + u.
Proof.
  intros Hlate H. pose proof (m_pos a). pose proof (ell_pos a). pose proof (c_over_v a).
  assert (Hle : 0 <= ell a * c a) by (apply Z.mul_nonneg_nonneg; lia).
  assert (Hlm : 0 <= ell a * v * m a) by (apply Z.mul_nonneg_nonneg; [apply Z.mul_nonneg_nonneg |]; lia).
  assert (Hml : 0 <= m a * (ell a * c a)) by (apply Z.mul_nonneg_nonneg; lia).
  destruct Hlate as [Hlate | Hlate].
  - pose proof (plus_b_wfi_after_finish _ _ _ _ _ _ _ _ Hlate H). unfold budget in *. lia.
  - pose proof (plus_b_wfi_after_start _ _ _ _ _ _ _ _ Hlate H). unfold budget in *. lia.
Qed.

(** The packet of [l] bytes that the flow sends next. [more] is the excess of its announced length: 0 for [Head::Known]. *)
Record packet a k st inn l more : Prop := {
  k_ring : exists r, ring inn = k :: r;
  k_fits : Drr.hd inn k <= d inn k;
  k_length : 0 < l <= Drr.hd inn k;
  k_more : Drr.hd inn k = l + more;
  k_step : exists st', step st st' a l }.

Lemma p_inside_packet a k st0 st t in0 inn wk l more :
  interval a k st0 st t in0 inn wk -> packet a k st inn l more ->
  sum wk (members a) + l <= m a * (wk k + l) + (m a - 1) * (2 * ell a + more).
Proof.
  intros [_ _ Hr Hk [turns H]] [[r Hring] Hd Hl Hm _].
  replace more with (Drr.hd inn k - l) by lia. eapply inside_packet; eauto.
Qed.

(** T-WFI, DS+ from F: (4 - 2 / m) L_k / phi + DS- + DS+ + M L - 2 m L_k, for heads of known length. *)
Theorem plus_t_wfi_after_finish a k st0 st t in0 inn wk l more :
  (forall a s h, rf a s h <= s + h * c a + late a) ->
  interval a k st0 st t in0 inn wk -> packet a k st inn l more ->
  (t + l) * v <= (wk k + l) * (m a * c a) + (m a - 1) * (2 * ell a + more) * c a + early a + late a
                 + 2 * budget a * (c a - v) + ML * v + u.
Proof.
  intros Hlate H Hp. pose proof (p_inside_packet _ _ _ _ _ _ _ _ _ _ H Hp) as Hin. pose proof (c_over_v a).
  destruct (k_step _ _ _ _ _ _ Hp) as [st' Hs]. pose proof (p_run _ _ _ _ _ _ _ _ H) as Hrun.
  pose proof (p_reachable _ _ _ _ _ _ _ _ H) as Hr.
  pose proof (t_wfi_after_finish aggregates nodup c w budget v ML u W K v_pos u_pos W_pos c_over_v w_nonneg budget_pos weights
    cost_up clock_down rs rf early rs_before rs_early rf_covers rf_grows late Hlate a st0 st st' t _ l Hr Hrun Hs) as Hb.
  assert (Hsound : Sound aggregates budget v u rs rf st).
  { eapply sound; try eassumption. eapply Stamps.run_reachable; eassumption. }
  pose proof (Stamps.run_active _ _ _ _ _ _ _ _ _ _ _ _ Hrun) as Hact.
  pose proof (s_head _ _ _ _ _ _ _ Hsound a (proj2 Hact)) as Hhd.
  pose proof (spent_most aggregates budget v u rs rf st a Hsound (proj2 Hact)) as Hsp.
  assert (Hl0 : 0 < l) by apply Hp.
  assert ((hd st a - spent st a - l) * (c a - v) <= budget a * (c a - v)) by (apply Z.mul_le_mono_nonneg_r; lia).
  assert ((sum wk (members a) + l) * c a <= (m a * (wk k + l) + (m a - 1) * (2 * ell a + more)) * c a)
    by (apply Z.mul_le_mono_nonneg_r; lia).
  lia.
Qed.

(** DS+ from S: (3 - 2 / m) L_k / phi + DS- + DS+ + M L - m L_k, for heads of known length. *)
Theorem plus_t_wfi_after_start a k st0 st t in0 inn wk l more :
  (forall a s h, rf a s h <= s + late a) ->
  interval a k st0 st t in0 inn wk -> packet a k st inn l more ->
  (t + l) * v <= (wk k + l) * (m a * c a) + (m a - 1) * (2 * ell a + more) * c a + early a + late a
                 + budget a * (c a - v) + ML * v + u.
Proof.
  intros Hlate H Hp. pose proof (p_inside_packet _ _ _ _ _ _ _ _ _ _ H Hp) as Hin. pose proof (c_over_v a).
  destruct (k_step _ _ _ _ _ _ Hp) as [st' Hs]. pose proof (p_run _ _ _ _ _ _ _ _ H) as Hrun.
  pose proof (p_reachable _ _ _ _ _ _ _ _ H) as Hr.
  pose proof (t_wfi_after_start aggregates nodup c w budget v ML u W K v_pos u_pos W_pos c_over_v w_nonneg budget_pos weights
    cost_up clock_down rs rf early rs_before rs_early rf_covers rf_grows late Hlate a st0 st st' t _ l Hr Hrun Hs) as Hb.
  assert (Hsound : Sound aggregates budget v u rs rf st).
  { eapply sound; try eassumption. eapply Stamps.run_reachable; eassumption. }
  pose proof (Stamps.run_active _ _ _ _ _ _ _ _ _ _ _ _ Hrun) as Hact.
  pose proof (s_head _ _ _ _ _ _ _ Hsound a (proj2 Hact)) as Hhd.
  assert (Hl0 : 0 < l) by apply Hp.
  assert (0 <= l * (c a - v)) by (apply Z.mul_nonneg_nonneg; lia).
  assert (0 <= hd st a * v) by (apply Z.mul_nonneg_nonneg; lia).
  assert ((sum wk (members a) + l) * c a <= (m a * (wk k + l) + (m a - 1) * (2 * ell a + more)) * c a)
    by (apply Z.mul_le_mono_nonneg_r; lia).
  lia.
Qed.

End SchedPlus.
