(** The order of QFQ's groups where a service consists of several packets: QFQ+, and QFQ in a tree.

    The chosen flow (an aggregate, for QFQ+) keeps its place while it is served. V moves with each packet, and other
    flows arrive and become eligible meanwhile. [Plus::catch_up] holds the choice, [Qfq::hold] keeps it selected,
    [Qfq::served] moves V, [Qfq::reschedule] ends the service. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Import Qfq.
Import ListNotations.
Open Scope Z_scope.

Section QfqPlus.
Context {C : config} {ok : well_formed C}.
Let v0 : 0 < v := v_pos.
Let u0 : 0 < u := u_pos.

(** The flow in service and the work of its service. *)
Definition service := option (nat * Z).

Inductive pstep : state * service -> state * service -> Prop :=
| p_arrive st cur k s :
    In k flows -> act st k = false -> start st k s ->
    pstep (st, cur) (mk (V st) (upd (S st) k s) (upd (act st) k true), cur)
| p_choose st k :
    elig st k -> (forall x, elig st x -> Rf st k <= Rf st x) -> pstep (st, None) (st, Some (k, 0))
| p_send st k x l :
    0 < l -> x + l <= mx k -> pstep (st, Some (k, x)) (mk (V st + l * v) (S st) (act st), Some (k, x + l))
| p_finish st k x more :
    pstep (st, Some (k, x)) (mk (V st) (upd (S st) k (S st k + x * c k)) (upd (act st) k more), None)
| p_jump st a to :
    active st a -> (forall x, active st x -> Rs st a <= Rs st x) -> V st < Rs st a -> Rs st a <= to < Rs st a + u ->
    pstep (st, None) (mk to (S st) (act st), None)
| p_restart st to :
    (forall x, ~ active st x) -> V st <= to -> pstep (st, None) (mk to (S st) (act st), None).

Inductive preachable : state * service -> Prop :=
| p_init : preachable (init, None)
| p_step p p' : preachable p -> pstep p p' -> preachable p'.

(** The flow in service is eligible, and no eligible flow of a higher group finishes before it. *)
Definition Held st (cur : service) :=
  match cur with
  | None => True
  | Some (k, x) =>
      elig st k /\ 0 <= x /\ (x = 0 \/ x <= mx k /\ Rs st k < V st) /\ (forall b, elig st b -> g k < g b -> Rf st k <= Rf st b)
  end.

(** As V moves, flows become eligible that start no earlier than any flow of a lower group. *)
Lemma Low_moves st to : T3 st -> Low st -> V st <= to -> Low (mk to (S st) (act st)).
Proof.
  intros H3 HL Hto a b [Hb HbV] Hg. change (Rs st a <= Rf st b).
  destruct (Z_le_gt_dec (Rs st b) (V st)); [apply HL; [split; assumption | assumption] |].
  pose proof (later_is_above st a b H3 ltac:(lia) ltac:(lia)). unfold Rf. pose proof (sigma_pos b). lia.
Qed.

Lemma unit_below st k : Rs st k <= V st -> Rs st k <= fu (V st).
Proof.
  intros H. apply gap_le with u; [apply u_pos | eapply Z.divide_trans; [apply u_slot | apply Rs_divides] | apply fu_divides |].
  pose proof (fu_gt (V st)). lia.
Qed.

(** A newcomer of a higher group finishes no earlier than the flow in service. *)
Lemma newcomer_is_later st k j s :
  elig st k -> (forall b, elig st b -> g k < g b -> Rf st k <= Rf st b) -> start st j s -> g k < g j ->
  Rf st k <= fl j s + 2 * sigma j.
Proof.
  intros [_ HkV] Hall Hst Hg. pose proof (unit_below st k HkV). pose proof (sigma_double k j Hg). pose proof (sigma_pos k).
  pose proof (sigma_pos j). pose proof (fl_gt j s).
  assert (HV : fu (V st) <= s -> Rf st k <= fl j s + 2 * sigma j) by (intros HVs; unfold Rf; lia).
  destruct Hst as [(b0 & Hb0 & Hgb & Hmin & ->) | [_ ->]]; [| apply HV; lia].
  destruct (Z_le_gt_dec (fu (V st)) (Rf st b0)) as [Hle | Hgt]; [apply HV; lia |].
  specialize (Hall b0 Hb0 ltac:(lia)).
  assert (HRf : fl j (Rf st b0) = Rf st b0).
  { apply fl_exact. eapply Z.divide_trans; [apply sigma_divides | apply Rf_divides]. lia. }
  assert (Hs : Rf st b0 <= Z.max (S st j) (Z.min (fu (V st)) (Rf st b0))) by lia.
  apply (fl_mono j) in Hs. rewrite HRf in Hs. clear HV H3. set (y := fl j _) in *. lia.
Qed.

Lemma pinvariant_step p p' :
  T3 (fst p) /\ Low (fst p) /\ Held (fst p) (snd p) -> pstep p p' -> T3 (fst p') /\ Low (fst p') /\ Held (fst p') (snd p').
Proof.
  intros (H3 & HL & HH) Hs. inversion Hs as [st cur k s Hk Ha Hst | st k He Hm | st k x l Hl Hx | st k x more
    | st a to Ha Hm Hv Hto | st to Hno Hto]; subst; simpl in *.
  - pose proof (Qfq.arrive st k s Hk Ha Hst) as Hstep. split; [eapply T3_step; eassumption |].
    split; [eapply Low_step; eassumption |]. destruct cur as [[k0 x] |]; [| exact I].
    destruct HH as ([[Hi Hact] HV] & Hx & Hlate & Hall). assert (Hkk : k0 <> k) by (intros ->; congruence).
    set (st' := mk (V st) (upd (S st) k s) (upd (act st) k true)).
    assert (HR : forall y, y <> k -> Rs st' y = Rs st y) by (intros y Hy; unfold Rs; simpl; now rewrite upd_other).
    assert (HF : Rf st' k0 = Rf st k0) by (unfold Rf; now rewrite HR).
    repeat split; try assumption; try lia.
    + simpl. now rewrite upd_other.
    + rewrite HR by assumption. assumption.
    + rewrite HR by assumption. assumption.
    + intros b [[Hbi Hba] HbV] Hg. rewrite HF. destruct (Nat.eq_dec b k) as [-> | Hbk].
      * unfold Rf at 2. unfold Rs. simpl. rewrite upd_same. eapply newcomer_is_later; eauto. repeat split; assumption.
      * unfold Rf at 2. rewrite HR by assumption. fold (Rf st b). simpl in Hba. rewrite upd_other in Hba by assumption.
        rewrite HR in HbV by assumption. apply Hall; [repeat split |]; assumption.
  - split; [assumption | split; [assumption |]]. split; [assumption | split; [lia | split; [now left |]]].
    intros b Hb _. now apply Hm.
  - destruct HH as ([Hact HV] & Hx0 & Hlate & Hall). assert (0 < l * v) by nia.
    assert (H3' : T3 (mk (V st + l * v) (S st) (act st))).
    { intros y. specialize (H3 y). change (Rs st y < V st + l * v + sigma y). lia. }
    split; [assumption |]. split; [apply Low_moves; [assumption | assumption | lia] |].
    repeat split; try apply Hact; try lia; try (change (Rs st k <= V st + l * v); lia).
    + right. split; [assumption |]. change (Rs st k < V st + l * v). lia.
    + intros b [Hb HbV] Hg. change (Rf st k <= Rf st b). destruct (Z_le_gt_dec (Rs st b) (V st)).
      * apply Hall; [split |]; assumption.
      * pose proof (later_is_above st k b H3 ltac:(lia) ltac:(lia)). pose proof (sigma_double k b Hg). unfold Rf.
        pose proof (sigma_pos k). lia.
  - destruct HH as ([[Hi Hact] HV] & Hx & Hlate & Hall). pose proof (c_pos k). pose proof (sigma_pos k).
    assert (Hc : x * c k <= sigma k).
    { destruct Hlate as [-> | [Hx' _]]; [lia | now apply len_slot]. }
    assert (0 <= x * c k) by (apply Z.mul_nonneg_nonneg; lia).
    set (st' := mk (V st) (upd (S st) k (S st k + x * c k)) (upd (act st) k more)).
    assert (HR : forall y, y <> k -> Rs st' y = Rs st y) by (intros y Hy; unfold Rs; simpl; now rewrite upd_other).
    assert (Hk' : Rs st' k = fl k (S st k + x * c k)) by (unfold Rs; simpl; now rewrite upd_same).
    assert (Hle : S st k <= S st k + x * c k) by (clear - H1; lia).
    pose proof (fl_mono k (S st k) (S st k + x * c k) Hle) as Hup. fold (Rs st k) in Hup.
    assert (Hup2 : Rs st' k <= Rs st k + sigma k).
    { rewrite Hk'. unfold Rs. apply gap_le with (sigma k); try apply sigma_pos; try apply fl_divides.
      - apply Z.divide_add_r; [apply fl_divides | apply Z.divide_refl].
      - pose proof (fl_le k (S st k + x * c k)). pose proof (fl_gt k (S st k)). lia. }
    split; [| split; [| exact I]].
    + intros y. change (V st') with (V st). destruct (Nat.eq_dec y k) as [-> | Hy]; [| rewrite HR by assumption; apply H3].
      destruct Hlate as [-> | [_ Hlate]]; [| lia]. rewrite Hk'. replace (S st k + 0 * c k) with (S st k) by lia. apply H3.
    + intros a b [[Hbi Hba] HbV] Hg. pose proof (sigma_pos k). destruct (Nat.eq_dec b k) as [-> | Hbk].
      * rewrite HR by (intros ->; lia). specialize (HL a k (conj (conj Hi Hact) HV) Hg). unfold Rf in *. rewrite Hk'. lia.
      * simpl in Hba. rewrite upd_other in Hba by assumption. change (V st') with (V st) in HbV.
        assert (HF : Rf st' b = Rf st b) by (unfold Rf; now rewrite HR). rewrite HF.
        rewrite HR in HbV by assumption. assert (Hbe : elig st b) by (repeat split; assumption).
        destruct (Nat.eq_dec a k) as [-> | Hak]; [specialize (Hall b Hbe Hg); unfold Rf at 1 in Hall; lia |].
        rewrite HR by assumption. now apply HL.
  - pose proof (Qfq.jump st a to Ha Hm Hv Hto) as Hstep.
    split; [eapply T3_step; eassumption | split; [eapply Low_step; eassumption | exact I]].
  - pose proof (Qfq.restart st to Hno Hto) as Hstep.
    split; [eapply T3_step; eassumption | split; [eapply Low_step; eassumption | exact I]].
Qed.

Theorem pinvariant st cur : preachable (st, cur) -> T3 st /\ Low st /\ Held st cur.
Proof.
  intros H. change (T3 (fst (st, cur)) /\ Low (fst (st, cur)) /\ Held (fst (st, cur)) (snd (st, cur))).
  induction H as [| p p' _ IH Hs]; [| eapply pinvariant_step; eassumption].
  split; [apply T3_init | split; [apply Low_init | exact I]].
Qed.

(** Theorem 7 while a service goes on. *)
Theorem pblocked_is_sorted st cur h i : preachable (st, cur) -> blocked st i -> g h < g i -> Rf st h <= Rf st i.
Proof.
  intros Hr (b & Hb & Hgb & Hf) Hg. destruct (pinvariant _ _ Hr) as (_ & HL & _).
  assert (H1 : Rs st h <= Rf st b) by (apply HL; [assumption | lia]).
  assert (H2 : Rf st b + sigma i <= Rf st i).
  { apply gap; [apply sigma_pos | | apply Rf_divides | assumption].
    eapply Z.divide_trans; [apply sigma_divides | apply Rf_divides]. lia. }
  pose proof (sigma_double h i Hg). unfold Rf in *. lia.
Qed.

(** Ineligible flows are sorted by group meanwhile (Section 4.1.3). *)
Theorem pineligible_is_sorted st cur h i :
  preachable (st, cur) -> V st < Rs st i -> g h < g i -> Rs st h <= Rs st i /\ Rf st h <= Rf st i.
Proof.
  intros Hr Hv Hg. destruct (pinvariant _ _ Hr) as (H3 & _).
  pose proof (later_is_above st h i H3 ltac:(lia) Hv). pose proof (sigma_double h i Hg). pose proof (sigma_pos h).
  unfold Rf. lia.
Qed.

(** No group above that of the flow in service comes before it in ER; a lower group may ([Qfq::move_overtaken]). *)
Theorem service_is_not_overtaken_from_above st k x b :
  preachable (st, Some (k, x)) -> elig st b -> g k < g b -> Rf st k <= Rf st b.
Proof. intros Hr Hb Hg. destruct (pinvariant _ _ Hr) as (_ & _ & _ & _ & _ & H). now apply H. Qed.

End QfqPlus.
