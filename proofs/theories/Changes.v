(** Weights and flows that change while the link runs.

    The promise is to a flow that keeps its weight over an interval in which it is backlogged. It gets its share of each
    byte that the link sends, its weight over the sum of weights at that moment, less a constant. V advances by the
    inverse of that sum, so this service is the weight times the advance of V. The constant is that of [Stamps], with
    a lag [lam] for L / W ([b_wfi], [t_wfi]):
    - While no flow leaves and no weight falls, [lam] is the largest L / W so far ([heavier_costs_nothing]).
    - A flow may leave, or become lighter, when its start is not after V. That keeps [lam * W], so the bound is that of a
      link which always had the smaller sum ([lighter_costs_its_lead]).
    - With a lead S - V, [lam * W] grows by the work of that lead, w (S - V). That is at most one longest packet and a
      slot ([lead_is_a_packet]). The flow takes away work that the others were promised.
    - When no flow is active, all of that is forgotten, and V may pass any finish ([rest], [start_busy_period]).
    A flow that changes has the promise for its old weight up to its next place, and for its new weight from there.

    The model follows crates/core/src/sched: [change] is [add], [remove] and [change] of an inactive entity ([adopt] of
    wf2q_plus.rs and groups.rs). A flow of weight 0 is not there, and may lose its start ([forget]). [serve_changed] is a
    pending change that takes effect after a service ([Wf2qPlus::leave], [Qfq::leave], [Members::may_stay]). [lam] is
    [Members::lag]. A service is one packet. QFQ, GFQ and S-KPS limit the start of a flow that moves to a finer group
    ([latest_start]). In the model, such a flow leaves with its lead and comes again. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Import Sums.
Import ListNotations.
Open Scope Z_scope.

Section Changes.

Variable flows : list nat.
Hypothesis nodup : NoDup flows.
Variable mx : nat -> Z.
Variables L u K : Z.
Hypothesis u_pos : 0 < u.
Hypothesis K_pos : 0 < K.
Hypothesis mx_pos : forall k, 0 < mx k <= L.

(** Rounded start of a flow, a cost and a start; rounded finish of a flow, a cost, a start and an announced length. *)
Variable rs : nat -> Z -> Z -> Z.
Variable rf : nat -> Z -> Z -> Z -> Z.
Hypothesis rs_before : forall k c s, rs k c s <= s.
Hypothesis rf_covers : forall k c s h, 0 < h <= mx k -> 0 < c -> s + h * c <= rf k c s h.
Hypothesis rf_grows : forall k c s h s' h', s <= s' -> s + h * c <= s' + h' * c -> rf k c s h <= rf k c s' h'.

Definition fu x := x / u * u.
Lemma fu_le x : fu x <= x.
Proof. unfold fu. pose proof (Z.mul_div_le x u). lia. Qed.
Lemma fu_gt x : x < fu x + u.
Proof. unfold fu. pose proof (Z.mul_succ_div_gt x u). lia. Qed.
Lemma fu_grows x y : x <= y -> fu x <= fu y.
Proof. intros H. unfold fu. apply Z.mul_le_mono_nonneg_r; [lia | apply Z.div_le_mono; lia]. Qed.

(** Of each flow, cost of a byte and weight; of all, progress of V per byte and the sum of weights. *)
Record terms := { c : nat -> Z; w : nat -> Z; v : Z; W : Z }.

(** Costs are rounded up, the clock down. *)
Record fair (t : terms) (act : nat -> bool) : Prop := {
  f_v : 0 < v t;
  f_c : forall k, v t <= c t k;
  f_w : forall k, 0 <= w t k;
  f_cost : forall k, act k = true -> K <= w t k * c t k;
  f_clock : W t * v t <= K;
  f_sum : sum (w t) flows <= W t }.

Record state := mk { now : terms; lam : Z; V : Z; S : nat -> Z; act : nat -> bool; hd : nat -> Z }.

Definition cost st k := c (now st) k.
Definition weight st k := w (now st) k.
Definition Rs st k := rs k (cost st k) (S st k).
Definition Rf st k := rf k (cost st k) (S st k) (hd st k).
Definition active st k := In k flows /\ act st k = true.
Definition elig st k := active st k /\ Rs st k <= V st.
Definition eligb st k := act st k && (Rs st k <=? V st).
Definition low st := fold_right (fun b acc => if eligb st b then Z.min (Rf st b) acc else acc) (fu (V st)) flows.

(** The lag after a change from [t] to [t'] of one weight by [d] less, of a flow that starts at [s]. *)
Record lag_after (t t' : terms) (d lam lam' lead : Z) : Prop := {
  l_grows : lam <= lam';
  l_least : L * v t' + u <= lam';
  l_lighter : 0 < d -> d * (lam + lead) <= W t' * (lam' - lam) }.

(** All but flow [k] have the terms that they had. *)
Definition only k (t t' : terms) :=
  (forall j, j <> k -> c t' j = c t j /\ w t' j = w t j) /\ W t' = W t - w t k + w t' k.

Inductive step : state -> state -> nat -> Z -> Prop :=
| arrive t la V S act hd k s h :
    let st := mk t la V S act hd in
    In k flows -> act k = false -> K <= w t k * c t k -> Z.max (S k) (low st) <= s <= Z.max (S k) V -> 0 < h <= mx k ->
    step st (mk t la V (upd S k s) (upd act k true) (upd hd k h)) k 0
| serve t la V S act hd k l more h :
    let st := mk t la V S act hd in
    elig st k -> (forall x, elig st x -> Rf st k <= Rf st x) -> 0 < l <= hd k -> 0 < h <= mx k -> hd k <= l + h ->
    step st (mk t la (V + l * v t) (upd S k (S k + l * c t k)) (upd act k more) (upd hd k h)) k l
| jump t la V S act hd a to :
    let st := mk t la V S act hd in
    active st a -> (forall x, active st x -> Rs st a <= Rs st x) -> V < Rs st a -> fu to = Rs st a ->
    step st (mk t la to S act hd) a 0
| change t la V S act hd k t' la' :
    act k = false -> In k flows -> only k t t' -> fair t' act ->
    lag_after t t' (w t k - w t' k) la la' (Z.max 0 (S k - V)) ->
    step (mk t la V S act hd) (mk t' la' V S act hd) k 0
| forget t la V S act hd k s :
    act k = false -> w t k = 0 -> s <= V ->
    step (mk t la V S act hd) (mk t la V (upd S k s) act hd) k 0
| rest t la V S act hd k to :
    (forall k, In k flows -> act k = false) -> V <= to ->
    step (mk t la V S act hd) (mk t (L * v t + u) to S act hd) k 0
(** A packet is sent, and another weight takes effect at the next place. *)
| serve_changed t la V S act hd k l h t' la' s' :
    let st := mk t la V S act hd in let V' := V + l * v t in let S' := S k + l * c t k in
    elig st k -> (forall x, elig st x -> Rf st k <= Rf st x) -> 0 < l <= hd k -> 0 < h <= mx k ->
    only k t t' -> fair t' act -> lag_after t t' (w t k - w t' k) la la' (Z.max 0 (S' - V')) ->
    S' <= s' <= Z.max S' V' ->
    (Rf st k <= rf k (c t' k) s' h \/ V' - la' <= s' /\ low st <= s') ->
    (w t k <= w t' k -> w t k * (S' - V' + la) <= w t' k * (s' - V' + la)) ->
    step st (mk t' la' V' (upd S k s') act (upd hd k h)) k l.

Variable t0 : terms.
Hypothesis t0_fair : fair t0 (fun _ => false).

Definition init := mk t0 (L * v t0 + u) 0 (fun _ => 0) (fun _ => false) (fun _ => 0).

Inductive reachable : state -> Prop :=
| r_init : reachable init
| r_step st st' k l : reachable st -> step st st' k l -> reachable st'.

Record Sound st : Prop := {
  s_fair : fair (now st) (act st);
  s_lag : L * v (now st) + u <= lam st;
  s_head : forall k, act st k = true -> In k flows /\ 0 < hd st k <= mx k }.

Ltac at_flow x k := destruct (Nat.eq_dec x k) as [-> | ?]; [rewrite ?upd_same in * | rewrite ?upd_other in * by assumption].
Ltac steps H := inversion H as
  [t la V0 S0 act0 hd0 k0 s h st_ Hf Ha Hc Hst Hh | t la V0 S0 act0 hd0 k0 l0 more h st_ He Hm Hl Hh Hn
  | t la V0 S0 act0 hd0 a0 to st_ Ha Hm Hv Hto | t la V0 S0 act0 hd0 k0 t' la' Ha Hf Ho Hfair Hla
  | t la V0 S0 act0 hd0 k0 s Ha Hz Hs0 | t la V0 S0 act0 hd0 k0 to Hno Hto | t la V0 S0 act0 hd0 k0 l0 h t' la' s' st_ V' S' He Hm Hl Hh Ho Hfair Hla Hs' Hfin Hw];
  subst; try subst st_; try subst V'; try subst S'; simpl in *.

Lemma sound_step st st' k l : Sound st -> step st st' k l -> Sound st'.
Proof.
  intros [H1 H2 H3] H. steps H; constructor; simpl; try assumption; try lia; try apply Hla.
  - destruct H1 as [? ? ? Hcost ? ?]. constructor; try assumption. intros x Hx. at_flow x k; auto.
  - intros x Hx. at_flow x k; auto.
  - destruct H1 as [? ? ? Hcost ? ?]. constructor; try assumption. intros x Hx. at_flow x k; [apply Hcost, He | auto].
  - intros x Hx. at_flow x k; [split; [apply He | assumption] | auto].
  - intros x Hx. at_flow x k; [split; [apply He | assumption] | auto].
Qed.

Theorem sound st : reachable st -> Sound st.
Proof.
  induction 1 as [| st st' k l _ IH H]; [| eapply sound_step; eassumption].
  constructor; simpl; [assumption | lia | discriminate].
Qed.

Lemma after_start st k : Sound st -> active st k -> S st k < Rf st k /\ S st k + hd st k * cost st k <= Rf st k.
Proof.
  intros H [_ Hk]. destruct (s_head _ H k Hk) as [_ Hh]. destruct (s_fair _ H) as [Hv Hc _ _ _ _]. specialize (Hc k).
  pose proof (rf_covers k (cost st k) (S st k) (hd st k) Hh). unfold Rf, cost in *. nia.
Qed.

Lemma eligb_spec st k : In k flows -> eligb st k = true <-> elig st k.
Proof. intros Hk. unfold eligb, elig, active. rewrite andb_true_iff, Z.leb_le. tauto. Qed.

Lemma low_spec st :
  low st <= fu (V st) /\ (forall b, elig st b -> low st <= Rf st b) /\
  (forall y, y <= fu (V st) -> (forall b, elig st b -> y <= Rf st b) -> y <= low st).
Proof.
  assert (H : forall l, incl l flows ->
    let x := fold_right (fun b acc => if eligb st b then Z.min (Rf st b) acc else acc) (fu (V st)) l in
    x <= fu (V st) /\ (forall b, In b l -> elig st b -> x <= Rf st b) /\
    (forall y, y <= fu (V st) -> (forall b, In b l -> elig st b -> y <= Rf st b) -> y <= x)).
  { induction l as [| b l IH]; intros Hi; simpl.
    - repeat split; [lia | intros b [] | auto].
    - destruct IH as (H1 & H2 & H3); [intros z Hz; apply Hi; now right |].
      assert (Hb : In b flows) by (apply Hi; now left).
      destruct (eligb st b) eqn:E.
      + apply eligb_spec in E; [| assumption]. repeat split.
        * lia.
        * intros z [<- | Hz] He; [lia |]. specialize (H2 z Hz He). lia.
        * intros y Hy Hall. apply Z.min_glb; [apply Hall; auto; now left |].
          apply H3; [assumption |]. intros z Hz. apply Hall. now right.
      + assert (Hno : elig st b -> False) by (intros He; apply eligb_spec in He; [congruence | assumption]).
        repeat split; [assumption | |].
        * intros z [<- | Hz] He; [exfalso; auto | auto].
        * intros y Hy Hall. apply H3; [assumption |]. intros z Hz. apply Hall. now right. }
  destruct (H flows (incl_refl _)) as (H1 & H2 & H3). repeat split.
  - exact H1.
  - intros b Hb. apply H2; [apply Hb | assumption].
  - intros y Hy Hall. apply H3; [assumption |]. intros b _. apply Hall.
Qed.

Lemma low_le_V st : low st <= V st.
Proof. pose proof (proj1 (low_spec st)). pose proof (fu_le (V st)). lia. Qed.
Lemma low_le st b : elig st b -> low st <= Rf st b. Proof. apply low_spec. Qed.
Lemma low_glb st y : y <= fu (V st) -> (forall b, elig st b -> y <= Rf st b) -> y <= low st. Proof. apply low_spec. Qed.

(** * Lemma 2 and Theorem 4, with [lam] for L / W *)

Definition E st k := Z.max (S st k) (low st).
Definition term st M k :=
  if act st k then (if Rf st k <=? M then weight st k * (M - S st k) else 0) else weight st k * Z.max 0 (M - E st k).

Definition Lemma2 st := forall M, V st <= M + lam st -> sum (term st M) flows <= W (now st) * (M + lam st - V st).
Definition T4 st := forall q, active st q -> V st <= Rf st q + lam st.

Lemma W_nonneg t a : fair t a -> 0 <= W t.
Proof. intros []. pose proof (sum_nonneg (w t) flows ltac:(auto)). lia. Qed.

Lemma low_not_late st : Sound st -> T4 st -> V st - lam st <= low st.
Proof.
  intros Hs H4. pose proof (s_lag _ Hs). pose proof (f_v _ _ (s_fair _ Hs)). pose proof (mx_pos 0%nat).
  assert (0 <= L * v (now st)) by nia.
  apply low_glb; [pose proof (fu_gt (V st)); lia |]. intros b [Hb _]. specialize (H4 b Hb). lia.
Qed.

Lemma term_active st M k :
  Sound st -> act st k = true -> Rf st k <= M -> weight st k * (hd st k * cost st k) <= term st M k /\ 0 <= M - S st k.
Proof.
  intros Hs Hk HM. pose proof (after_start st k Hs (conj (proj1 (s_head _ Hs k Hk)) Hk)) as Ha.
  unfold term. rewrite Hk. pose proof HM as HM'. apply Z.leb_le in HM'. rewrite HM'.
  pose proof (f_w _ _ (s_fair _ Hs) k). split; [apply Z.mul_le_mono_nonneg_l; unfold weight; lia | lia].
Qed.

Lemma term_nonneg st M k : Sound st -> 0 <= term st M k.
Proof.
  intros Hs. pose proof (f_w _ _ (s_fair _ Hs) k). unfold term, weight. destruct (act st k) eqn:Hk.
  - destruct (Rf st k <=? M) eqn:HM; [| lia]. apply Z.leb_le in HM. pose proof (term_active st M k Hs Hk HM). apply Z.mul_nonneg_nonneg; lia.
  - apply Z.mul_nonneg_nonneg; lia.
Qed.

Lemma all_terms t a (f : nat -> Z) y :
  fair t a -> 0 <= y -> (forall k, In k flows -> f k <= w t k * y) -> sum f flows <= W t * y.
Proof.
  intros Hf Hy H. eapply Z.le_trans; [apply sum_le, H |]. rewrite sum_scale. pose proof (f_sum _ _ Hf).
  apply Z.mul_le_mono_nonneg_r; lia.
Qed.

(** A step that leaves the terms of [k] as they are, and lets [low] grow. *)
Lemma term_same st st' M k :
  Sound st -> low st <= low st' -> S st' k = S st k -> act st' k = act st k -> hd st' k = hd st k ->
  cost st' k = cost st k -> weight st' k = weight st k -> term st' M k <= term st M k.
Proof.
  intros Hs Hlow HS HA HH HC HW. unfold term, E, Rf. rewrite HA, HS, HH, HC, HW. destruct (act st k); [lia |].
  pose proof (f_w _ _ (s_fair _ Hs) k). unfold weight in *. apply Z.mul_le_mono_nonneg_l; lia.
Qed.

Lemma old_finishes st b : Sound st -> active st b -> low st <= Rf st b.
Proof.
  intros Hs Hb. destruct (Z_le_gt_dec (Rs st b) (V st)); [apply low_le; split; assumption |].
  pose proof (after_start st b Hs Hb). pose proof (rs_before b (cost st b) (S st b)). pose proof (low_le_V st).
  unfold Rs in *. lia.
Qed.

Lemma low_grows st st' i l : Sound st -> step st st' i l -> low st <= low st'.
Proof.
  intros Hs H. pose proof (proj1 (low_spec st)) as Hfu. pose proof (old_finishes st) as Hold.
  pose proof (f_v _ _ (s_fair _ Hs)) as Hv0. pose proof (f_c _ _ (s_fair _ Hs)) as Hc0.
  steps H; apply low_glb; simpl; try assumption.
  - intros k [[Hk Hka] _]. unfold Rf, cost. simpl in *. at_flow k i; [| apply (Hold k Hs); split; assumption].
    specialize (Hc0 i). pose proof (rf_covers i (c t i) s h Hh ltac:(lia)). nia.
  - assert (0 < l * v t) by nia. pose proof (fu_grows V0 (V0 + l * v t)). lia.
  - intros k [[Hk Hka] _]. unfold Rf, cost. simpl in *. at_flow k i; [| apply (Hold k Hs); split; assumption].
    specialize (Hold i Hs (proj1 He)). specialize (Hc0 i). unfold Rf, cost in Hold. simpl in Hold.
    pose proof (rf_grows i (c t i) (S0 i) (hd0 i) (S0 i + l * c t i) h). nia.
  - pose proof (fu_grows V0 to) as Hg. pose proof (fu_le to). pose proof (rs_before i (c t i) (S0 i)). unfold Rs, cost in *. simpl in *. lia.
  - intros k [Hk _]. apply (Hold k Hs Hk).
  - intros k [[Hk Hka] HR]. simpl in *. assert (k <> i) by (intros ->; congruence).
    destruct Ho as [Ho _]. destruct (Ho k H0) as [HC HW]. unfold Rf, cost. simpl. rewrite HC.
    apply (Hold k Hs). split; assumption.
  - intros k [[Hk Hka] _]. simpl in *. assert (k <> i) by (intros ->; congruence). unfold Rf, cost. simpl.
    rewrite upd_other by assumption. apply (Hold k Hs). split; assumption.
  - pose proof (fu_grows V0 to). lia.
  - intros k [Hk _]. apply (Hold k Hs Hk).
  - assert (0 < l * v t) by nia. pose proof (fu_grows V0 (V0 + l * v t)). lia.
  - intros k [[Hk Hka] _]. unfold Rf, cost. simpl in *. at_flow k i.
    + specialize (Hold i Hs (proj1 He)). destruct Hfin as [Hfin | [_ Hfin]]; [lia |].
      pose proof (f_c _ _ Hfair i). pose proof (f_v _ _ Hfair). pose proof (rf_covers i (c t' i) s' h Hh ltac:(lia)). nia.
    + destruct Ho as [Ho _]. destruct (Ho k n) as [HC HW]. rewrite HC. apply (Hold k Hs). split; assumption.
Qed.

(** The flows that a service passes over, where the served flow finishes after M. *)
Lemma passed_over st k l M Y j :
  Sound st -> elig st k -> (forall x, elig st x -> Rf st k <= Rf st x) -> 0 < l <= L -> M < Rf st k ->
  Y = M + lam st - (V st + l * v (now st)) ->
  Z.min (V st - u) M <= low st /\ Z.max 0 (M - (V st - u)) <= Z.max 0 Y /\
  (active st j -> Rf st j <= M -> V st <= S st j).
Proof.
  intros Hs He Hm Hl HM ->. pose proof (s_lag _ Hs). pose proof (f_v _ _ (s_fair _ Hs)).
  assert (l * v (now st) <= L * v (now st)) by (apply Z.mul_le_mono_nonneg_r; lia).
  repeat split; [| lia |].
  - apply low_glb; [pose proof (fu_gt (V st)); lia |]. intros b Hb. specialize (Hm b Hb). lia.
  - intros Hj HR. destruct (Z_le_gt_dec (Rs st j) (V st)).
    + specialize (Hm j (conj Hj l0)). lia.
    + pose proof (rs_before j (cost st j) (S st j)). unfold Rs in *. lia.
Qed.

(** The work of a service of [k] that is due by M. *)
Lemma due st k l M :
  Sound st -> Lemma2 st -> T4 st -> active st k -> 0 < l <= hd st k -> Rf st k <= M ->
  V st <= M + lam st /\ V st + l * v (now st) <= M + lam st /\
  W (now st) * (l * v (now st)) <= weight st k * (l * cost st k).
Proof.
  intros Hs H2 H4 Hk Hl HM. pose proof (H4 k Hk). assert (HV : V st <= M + lam st) by lia. specialize (H2 M HV).
  destruct (s_fair _ Hs) as [Hv Hc Hw Hcost Hclock Hsum]. pose proof (Hcost k (proj2 Hk)) as Hck. specialize (Hc k). specialize (Hw k).
  assert (Hwork : W (now st) * (l * v (now st)) <= weight st k * (l * cost st k)).
  { assert (W (now st) * v (now st) * l <= w (now st) k * c (now st) k * l) by (apply Z.mul_le_mono_nonneg_r; lia).
    unfold weight, cost. lia. }
  pose proof (term_active st M k Hs (proj2 Hk) HM) as [Ht _].
  assert (Hs2 : term st M k <= sum (term st M) flows).
  { apply sum_ge_term; [apply Hk | intros; now apply term_nonneg]. }
  assert (weight st k * (l * cost st k) <= weight st k * (hd st k * cost st k)).
  { unfold weight, cost. apply Z.mul_le_mono_nonneg_l; [lia |]. apply Z.mul_le_mono_nonneg_r; lia. }
  assert (HW : W (now st) * (l * v (now st)) <= W (now st) * (M + lam st - V st)) by lia.
  repeat split; [assumption | | assumption].
  destruct (Z.eq_dec (W (now st)) 0) as [Hz | Hz].
  - exfalso. pose proof (sum_ge_term (w (now st)) flows k (proj1 Hk) ltac:(intros x _; apply (f_w _ _ (s_fair _ Hs) x))).
    assert (Hwk : w (now st) k = 0) by lia. rewrite Hwk in Hck. lia.
  - assert (0 < W (now st)) by (pose proof (W_nonneg _ _ (s_fair _ Hs)); lia). nia.
Qed.

(** A change of one weight, in the sum: [a'] for [a] of flow [k], where the others stay or fall. *)
Lemma sum_changed f h k x : In k flows -> (forall j, In j flows -> j <> k -> h j <= f j) -> h k <= f k + x -> sum h flows <= sum f flows + x.
Proof. intros Hk Hj Hx. pose proof (sum_others h f k flows nodup Hk Hj). lia. Qed.

Ltac flat st t la V0 S0 act0 hd0 :=
  unfold weight, cost in *; change (now st) with t in *; change (lam st) with la in *; change (V st) with V0 in *;
  change (S st) with S0 in *; change (act st) with act0 in *; change (hd st) with hd0 in *.

Lemma Lemma2_step st st' i l : Sound st -> Lemma2 st -> T4 st -> step st st' i l -> Lemma2 st'.
Proof.
  intros Hs H2 H4 H M HM. pose proof (low_grows _ _ _ _ Hs H) as Hlow. pose proof (sound_step _ _ _ _ Hs H) as Hs'.
  pose proof (s_fair _ Hs) as Hfair0. pose proof (s_lag _ Hs) as Hlag. pose proof (f_v _ _ Hfair0) as Hv0.
  assert (HLv : 0 < L * v (now st)) by (pose proof (mx_pos i); nia). pose proof H as Hstep.
  inversion H as
  [t la V0 S0 act0 hd0 k0 s h st_ Hf Ha Hc Hst Hh | t la V0 S0 act0 hd0 k0 l0 more h st_ He Hm Hl Hh Hn
  | t la V0 S0 act0 hd0 a0 to st_ Ha Hm Hv Hto | t la V0 S0 act0 hd0 k0 t' la' Ha Hf Ho Hfair Hla
  | t la V0 S0 act0 hd0 k0 s Ha Hz Hs0 | t la V0 S0 act0 hd0 k0 to Hno Hto | t la V0 S0 act0 hd0 k0 l0 h t' la' s' st_ V' S' He Hm Hl Hh Ho Hfair Hla Hs1 Hfin Hw];
  try subst st_; try subst V'; try subst S'; subst;
  match type of Hs with Sound ?s => set (st := s) in * end;
  match type of Hs' with Sound ?s => set (st' := s) in * end.
  - (* arrival *)
    eapply Z.le_trans; [| apply (H2 M HM)]. apply sum_le. intros k Hk. destruct (Nat.eq_dec k i) as [-> | Hki].
    + pose proof (f_w _ _ Hfair0 i) as Hwi. unfold term, weight, E, Rf, cost. subst st st'. simpl in *. rewrite !upd_same, Ha.
      destruct (rf i (c t i) s h <=? M); [apply Z.mul_le_mono_nonneg_l; lia | apply Z.mul_nonneg_nonneg; lia].
    + apply term_same; try assumption; try reflexivity; simpl; now rewrite upd_other.
  - (* service *)
    pose proof (s_head _ Hs i (proj2 (proj1 He))) as [Hif Hhd]. pose proof (mx_pos i) as HmxL. simpl in Hl.
    pose proof (f_w _ _ Hfair0 i) as Hwi. pose proof (f_c _ _ Hfair0 i) as Hci.
    destruct (Z_le_gt_dec (Rf st i) M) as [Hle | Hgt].
    + destruct (due st i l M Hs H2 H4 (proj1 He) Hl Hle) as (HV & HV' & Hwork).
      assert (sum (term st' M) flows <= sum (term st M) flows + - (weight st i * (l * cost st i))).
      { apply (sum_changed _ _ i); [assumption | |].
        - intros k Hk Hki. apply term_same; try assumption; try reflexivity; simpl; now rewrite upd_other.
        - pose proof (after_start st i Hs (proj1 He)) as [_ Hafter]. pose proof (proj2 (proj1 He)) as Hia.
          unfold term at 2. rewrite Hia. pose proof Hle as Hle'. apply Z.leb_le in Hle'. rewrite Hle'.
          flat st t la V0 S0 act0 hd0.
          assert (l * c t i <= hd0 i * c t i) by (apply Z.mul_le_mono_nonneg_r; lia).
          assert (Hb : term st' M i <= w t i * (M - S0 i - l * c t i)); [| lia].
          assert (Hnn : 0 <= w t i * (M - S0 i - l * c t i)) by (apply Z.mul_nonneg_nonneg; lia).
          unfold term. change (act st' i) with (upd act0 i more i). rewrite upd_same.
          change (weight st' i) with (w t i). unfold E. change (S st' i) with (upd S0 i (S0 i + l * c t i) i). rewrite upd_same.
          destruct more; [destruct (Rf st' i <=? M); [apply Z.mul_le_mono_nonneg_l; lia | assumption] |].
          apply Z.mul_le_mono_nonneg_l; lia. }
      specialize (H2 M HV). change (sum (term st' M) flows <= W t * (M + la - (V0 + l * v t))).
      flat st t la V0 S0 act0 hd0. lia.
    + set (Y := M + la - (V0 + l * v t)). assert (HY : 0 <= Y) by (unfold Y; simpl in HM; lia).
      change (hd st i) with (hd0 i) in Hhd.
      apply (all_terms t (act st') (term st' M) Y); [apply Hs' | assumption |]. intros k Hk.
      destruct (passed_over st i l M Y k Hs He Hm ltac:(lia) ltac:(lia) eq_refl) as (Hp1 & Hp2 & Hp3).
      pose proof (f_w _ _ Hfair0 k) as Hwk. change (now st) with t in Hwk. unfold term. change (weight st' k) with (w t k).
      destruct (act st' k) eqn:Hka.
      * destruct (Rf st' k <=? M) eqn:HR; [| apply Z.mul_nonneg_nonneg; lia]. apply Z.leb_le in HR.
        assert (Hki : k <> i).
        { intros ->. unfold Rf, cost in HR, Hgt. subst st st'. simpl in HR, Hgt. rewrite !upd_same in HR.
          pose proof (rf_grows i (c t i) (S0 i) (hd0 i) (S0 i + l * c t i) h). simpl in *. nia. }
        unfold Rf, cost in *. subst st st'. simpl in *. rewrite !upd_other in * by assumption.
        specialize (Hp3 (conj Hk Hka) HR). apply Z.mul_le_mono_nonneg_l; lia.
      * unfold E. apply Z.mul_le_mono_nonneg_l; simpl in *; lia.
  - (* jump *)
    simpl in *. set (Y := M + la - to). assert (HY : 0 <= Y) by (unfold Y; lia). pose proof (fu_le to). pose proof (fu_gt to).
    apply (all_terms t (act st') (term st' M) Y); [apply Hs' | assumption |]. intros k Hk.
    pose proof (f_w _ _ Hfair0 k) as Hwk. simpl in Hwk.
    assert (Hstart : forall x, active st x -> Rs st i <= S st x).
    { intros x Hx. specialize (Hm x Hx). pose proof (rs_before x (cost st x) (S st x)). unfold Rs in *. lia. }
    assert (Hl : Rs st i <= low st').
    { apply low_glb; [subst st'; simpl; lia |]. intros b [Hb _]. specialize (Hstart b Hb). pose proof (after_start st b Hs Hb).
      change (Rf st' b) with (Rf st b). lia. }
    unfold term. change (weight st' k) with (w t k).
    destruct (act st' k) eqn:Hka.
    + specialize (Hstart k (conj Hk Hka)). change (S st' k) with (S st k).
      destruct (Rf st' k <=? M); [apply Z.mul_le_mono_nonneg_l; unfold Y; lia | apply Z.mul_nonneg_nonneg; lia].
    + unfold E. apply Z.mul_le_mono_nonneg_l; unfold Y; lia.
  - (* another weight of an idle flow *)
    pose proof (low_not_late st Hs H4) as Hnl. change (V st) with V0 in Hnl. change (lam st) with la in Hnl.
    destruct Hla as [Hg Hleast Hlight]. destruct Ho as [Ho HW].
    assert (Hother : forall j, In j flows -> j <> i -> term st' M j <= term st M j).
    { intros j Hj Hji. destruct (Ho j Hji). apply term_same; try assumption; reflexivity. }
    assert (Hi : forall t, act0 i = false -> term st M i = w (now st) i * Z.max 0 (M - E st i)
      /\ (t = t' -> term st' M i = w t' i * Z.max 0 (M - E st' i))).
    { intros x Hx. unfold term. simpl. rewrite Hx. split; [reflexivity | intros _; reflexivity]. }
    destruct (Hi t' Ha) as [Ht Ht']. specialize (Ht' eq_refl).
    pose proof (f_w _ _ Hfair0 i) as Hwi. pose proof (f_w _ _ Hfair i) as Hwi'. pose proof (W_nonneg _ _ Hfair) as HW'.
    assert (HE : E st i <= E st' i) by (unfold E; change (S st' i) with (S st i); lia).
    set (m := Z.max 0 (M - E st i)) in *.
    assert (Hm' : w t' i * Z.max 0 (M - E st' i) <= w t' i * m) by (apply Z.mul_le_mono_nonneg_l; unfold m; lia).
    simpl in HM, Hwi. change (sum (term st' M) flows <= W t' * (M + la' - V0)). change (now st) with t in *.
    destruct (Z_le_gt_dec V0 (M + la)) as [HV | HV].
    + specialize (H2 M HV). change (now st) with t in H2. change (lam st) with la in H2. change (V st) with V0 in H2.
      assert (Hsum : sum (term st' M) flows <= sum (term st M) flows + (w t' i - w t i) * m).
      { apply (sum_changed _ _ i); [assumption | assumption | lia]. }
      set (d := w t i - w t' i) in *. assert (HWd : W t = W t' + d) by (unfold d; lia). rewrite HWd in H2.
      assert (Hneed : d * (M + la - V0 - m) <= W t' * (la' - la)); [| clear - Hsum H2 Hneed; unfold d in *; lia].
      destruct (Z_le_gt_dec d 0) as [Hd | Hd].
      * assert (0 <= M + la - V0 - m) by (unfold m, E; change (S st i) with (S0 i) in *; lia).
        assert (0 <= W t' * (la' - la)) by (apply Z.mul_nonneg_nonneg; lia).
        assert (d * (M + la - V0 - m) <= 0) by (apply Z.mul_nonpos_nonneg; lia). lia.
      * eapply Z.le_trans; [| apply Hlight; lia]. apply Z.mul_le_mono_nonneg_l; [lia |].
        pose proof (low_le_V st). unfold m, E. change (V st) with V0 in *. change (S st i) with (S0 i). lia.
    + (* M is before all that is due *)
      apply (all_terms t' act0 (term st' M) (M + la' - V0)); [assumption | lia |]. intros j Hj.
      pose proof (f_w _ _ Hfair j) as Hwj. unfold term. change (weight st' j) with (w t' j).
      destruct (act st' j) eqn:Hja.
      * destruct (Rf st' j <=? M) eqn:HR; [| apply Z.mul_nonneg_nonneg; lia]. apply Z.leb_le in HR. exfalso.
        assert (Hji : j <> i) by (intros ->; simpl in Hja; congruence). destruct (Ho j Hji) as [HC _].
        specialize (H4 j (conj Hj Hja)). unfold Rf, cost in *. subst st st'. simpl in *. rewrite HC in HR. lia.
      * unfold E. apply Z.mul_le_mono_nonneg_l; lia.
  - (* a flow that is not there *)
    eapply Z.le_trans; [| apply (H2 M HM)]. apply sum_le. intros k Hk. destruct (Nat.eq_dec k i) as [-> | Hki].
    + unfold term, weight. change (act st' i) with (act0 i). change (act st i) with (act0 i). rewrite Ha.
      change (w (now st') i) with (w t i). change (w (now st) i) with (w t i). rewrite Hz. lia.
    + apply term_same; try assumption; try reflexivity; simpl; now rewrite upd_other.
  - (* nothing is active *)
    simpl in HM. change (sum (term st' M) flows <= W t * (M + (L * v t + u) - to)).
    apply (all_terms t act0 (term st' M) (M + (L * v t + u) - to)); [assumption | lia |]. intros k Hk.
    pose proof (f_w _ _ Hfair0 k) as Hwk. simpl in Hwk. unfold term. change (weight st' k) with (w t k).
    assert (Hl : to - u <= low st').
    { apply low_glb; [pose proof (fu_gt to); simpl; lia |]. intros b [[Hb Hba] _]. simpl in Hba. rewrite (Hno b Hb) in Hba. discriminate. }
    change (act st' k) with (act0 k). rewrite (Hno k Hk). unfold E. simpl in HLv. apply Z.mul_le_mono_nonneg_l; lia.
  - (* service, and another weight from then on *)
    pose proof (s_head _ Hs i (proj2 (proj1 He))) as [Hif Hhd]. pose proof (mx_pos i) as HmxL.
    destruct Hla as [Hg Hleast Hlight]. destruct Ho as [Ho HW].
    pose proof (f_w _ _ Hfair0 i) as Hwi. pose proof (f_c _ _ Hfair0 i) as Hci. pose proof (f_w _ _ Hfair i) as Hwi'.
    pose proof (W_nonneg _ _ Hfair) as HW'. change (now st) with t in *.
    set (V' := V0 + l * v t) in *. set (S1 := S0 i + l * c t i) in *.
    change (V' <= M + la') in HM. change (sum (term st' M) flows <= W t' * (M + la' - V')).
    change (hd0 i) with (hd st i) in Hl.
    destruct (Z_le_gt_dec (Rf st i) M) as [Hle | Hgt].
    + destruct (due st i l M Hs H2 H4 (proj1 He) Hl Hle) as (HV & HV' & Hwork).
      pose proof (after_start st i Hs (proj1 He)) as [_ Hafter]. pose proof (proj2 (proj1 He)) as Hia.
      flat st t la V0 S0 act0 hd0. fold V' in HV'.
      assert (Hlc : l * c t i <= hd0 i * c t i) by (apply Z.mul_le_mono_nonneg_r; lia).
      assert (HS1 : S1 <= M) by (unfold S1; lia).
      assert (Hti : term st M i = w t i * (M - S1) + w t i * (l * c t i)).
      { unfold term. change (act st i) with (act0 i). rewrite Hia. pose proof Hle as Hle'. apply Z.leb_le in Hle'. rewrite Hle'.
        change (weight st i) with (w t i). change (S st i) with (S0 i). unfold S1. lia. }
      assert (Hti' : term st' M i <= w t' i * Z.max 0 (M - s')).
      { unfold term. change (act st' i) with (act0 i). rewrite Hia. change (weight st' i) with (w t' i).
        destruct (Rf st' i <=? M); [| apply Z.mul_nonneg_nonneg; lia].
        change (S st' i) with (upd S0 i s' i). rewrite upd_same. apply Z.mul_le_mono_nonneg_l; lia. }
      assert (Hti2 : term st' M i <= w t' i * (M - s') \/ term st' M i <= 0).
      { destruct (Z_le_gt_dec s' M); [left; replace (M - s') with (Z.max 0 (M - s')) by lia; assumption |].
        right. replace (Z.max 0 (M - s')) with 0 in Hti' by lia. lia. }
      assert (Hsum : sum (term st' M) flows <= sum (term st M) flows + (term st' M i - term st M i)).
      { apply (sum_changed _ _ i); [assumption | | lia]. intros j Hj Hji. destruct (Ho j Hji).
        apply term_same; try assumption; try reflexivity; simpl; now rewrite upd_other. }
      specialize (H2 M HV). flat st t la V0 S0 act0 hd0.
      set (d := w t i - w t' i) in *. assert (HWd : W t = W t' + d) by (unfold d; lia).
      assert (HA : sum (term st' M) flows <= W t * (M + la - V') - w t i * (M - S1) + term st' M i) by (unfold V'; lia).
      rewrite HWd in HA.
      assert (Hneed : d * (M + la - V') - w t i * (M - S1) + term st' M i <= W t' * (la' - la)); [| clear - HA Hneed; lia].
      assert (Hla : 0 <= W t' * (la' - la)) by (apply Z.mul_nonneg_nonneg; lia).
      destruct (Z_le_gt_dec d 0) as [Hd | Hd].
      * specialize (Hw ltac:(unfold d in Hd; lia)). destruct Hti2 as [Hti2 | Hti2].
        -- assert (d * (M + la - V') - w t i * (M - S1) + w t' i * (M - s') <= 0); [| lia].
           clear - Hw. unfold d. lia.
        -- assert (d * (M + la - V') <= 0) by (apply Z.mul_nonpos_nonneg; lia). assert (0 <= w t i * (M - S1)) by (apply Z.mul_nonneg_nonneg; lia). lia.
      * specialize (Hlight ltac:(lia)).
        assert (Hlead : d * (la + S1 - V') <= d * (la + Z.max 0 (S1 - V'))) by (apply Z.mul_le_mono_nonneg_l; lia).
        assert (term st' M i <= w t' i * (M - S1)).
        { eapply Z.le_trans; [exact Hti' |]. apply Z.mul_le_mono_nonneg_l; lia. }
        clear - Hlight Hlead H0. unfold d in *. lia.
    + set (Y := M + la' - V'). assert (HY : 0 <= Y) by (unfold Y; lia).
      apply (all_terms t' (act st') (term st' M) Y); [apply Hs' | assumption |]. intros k Hk.
      destruct (passed_over st i l M (M + la - V') k Hs He Hm ltac:(lia) ltac:(lia) eq_refl) as (Hp1 & Hp2 & Hp3).
      change (V st) with V0 in *. assert (Hp : Z.max 0 (M - (V0 - u)) <= Y).
      { unfold Y, V'. assert (l * v t <= L * v t) by (apply Z.mul_le_mono_nonneg_r; simpl in *; lia). simpl in Hlag. lia. }
      pose proof (f_w _ _ Hfair k) as Hwk. unfold term. change (weight st' k) with (w t' k).
      destruct (act st' k) eqn:Hka.
      * destruct (Rf st' k <=? M) eqn:HR; [| apply Z.mul_nonneg_nonneg; lia]. apply Z.leb_le in HR.
        destruct (Nat.eq_dec k i) as [-> | Hki].
        -- change (S st' i) with (upd S0 i s' i). rewrite upd_same. destruct Hfin as [Hfin | [Hfin _]].
           ++ exfalso. unfold Rf, cost in HR, Hgt. subst st st'. simpl in HR, Hgt, Hfin. rewrite !upd_same in HR.
              unfold Rf, cost in Hfin. simpl in Hfin. lia.
           ++ apply Z.mul_le_mono_nonneg_l; unfold Y; lia.
        -- destruct (Ho k Hki) as [HC _]. assert (HR0 : Rf st k <= M).
           { unfold Rf, cost in *. subst st st'. simpl in *. rewrite !upd_other, HC in HR by assumption. exact HR. }
           specialize (Hp3 (conj Hk Hka) HR0). change (S st' k) with (upd S0 i s' k). rewrite upd_other by assumption.
           change (S st k) with (S0 k) in Hp3. apply Z.mul_le_mono_nonneg_l; lia.
      * unfold E. apply Z.mul_le_mono_nonneg_l; lia.
Qed.

(** After a service of [k], no waiting flow is later than [lam]. *)
Lemma after_service st k l q :
  Sound st -> Lemma2 st -> T4 st -> elig st k -> (forall x, elig st x -> Rf st k <= Rf st x) -> 0 < l <= hd st k ->
  active st q -> V st + l * v (now st) <= Rf st q + lam st.
Proof.
  intros Hs H2 H4 He Hm Hl Hq. pose proof (s_head _ Hs k (proj2 (proj1 He))) as [_ Hh]. pose proof (mx_pos k).
  destruct (Z_le_gt_dec (Rf st k) (Rf st q)) as [Hle | Hgt]; [apply (due st k l (Rf st q) Hs H2 H4 (proj1 He) Hl Hle) |].
  destruct (Z_le_gt_dec (Rs st q) (V st)) as [Hr | Hr]; [specialize (Hm q (conj Hq Hr)); lia |].
  pose proof (after_start st q Hs Hq). pose proof (rs_before q (cost st q) (S st q)). pose proof (s_lag _ Hs).
  pose proof (f_v _ _ (s_fair _ Hs)). assert (l * v (now st) <= L * v (now st)) by (apply Z.mul_le_mono_nonneg_r; lia).
  unfold Rs in *. lia.
Qed.

Lemma T4_step st st' i l : Sound st -> Lemma2 st -> T4 st -> step st st' i l -> T4 st'.
Proof.
  intros Hs H2 H4 H q Hq. pose proof (low_not_late st Hs H4) as Hnl. pose proof (after_service st i l) as Has.
  pose proof (f_v _ _ (s_fair _ Hs)) as Hv0. pose proof (f_c _ _ (s_fair _ Hs)) as Hc0. pose proof (s_lag _ Hs) as Hlag.
  steps H; destruct Hq as [Hqf Hqa]; simpl in *.
  - unfold Rf, cost. simpl. at_flow q i; [| apply H4; split; assumption].
    specialize (Hc0 i). pose proof (rf_covers i (c t i) s h Hh ltac:(lia)). nia.
  - unfold Rf, cost. simpl. at_flow q i; [| apply (Has q Hs H2 H4 He Hm Hl (conj Hqf Hqa))].
    specialize (Has i Hs H2 H4 He Hm Hl (proj1 He)). unfold Rf, cost in Has. simpl in Has.
    specialize (Hc0 i). pose proof (rf_grows i (c t i) (S0 i) (hd0 i) (S0 i + l * c t i) h). nia.
  - specialize (Hm q (conj Hqf Hqa)). pose proof (after_start _ q Hs (conj Hqf Hqa)) as Ha'. pose proof (fu_gt to).
    pose proof (rs_before q (c t q) (S0 q)). pose proof (mx_pos i). assert (0 <= L * v t) by nia.
    unfold Rs, Rf, cost in *. simpl in *. lia.
  - assert (Hqi : q <> i) by (intros ->; congruence). destruct Ho as [Ho _]. destruct (Ho q Hqi) as [HC _].
    specialize (H4 q (conj Hqf Hqa)). unfold Rf, cost in *. simpl in *. rewrite HC. destruct Hla. lia.
  - assert (Hqi : q <> i) by (intros ->; congruence). unfold Rf, cost. simpl. rewrite upd_other by assumption.
    apply (H4 q (conj Hqf Hqa)).
  - rewrite (Hno q Hqf) in Hqa. discriminate.
  - destruct Hla as [Hg _ _]. destruct Ho as [Ho _]. unfold Rf, cost. simpl. at_flow q i.
    + specialize (Has i Hs H2 H4 He Hm Hl (proj1 He)). destruct Hfin as [Hfin | [Hfin _]]; [lia |].
      pose proof (f_c _ _ Hfair i). pose proof (f_v _ _ Hfair). pose proof (rf_covers i (c t' i) s' h Hh ltac:(lia)). nia.
    + destruct (Ho q n) as [HC _]. rewrite HC. specialize (Has q Hs H2 H4 He Hm Hl (conj Hqf Hqa)).
      unfold Rf, cost in Has. simpl in Has. lia.
Qed.

Theorem theorem4 st : reachable st -> Lemma2 st /\ T4 st.
Proof.
  induction 1 as [| st st' k l Hr [H2 H4] H].
  - split; [| intros q [_ [=]]]. intros M HM. unfold init in *. simpl in *.
    apply (all_terms t0 (fun _ => false) _ (M + (L * v t0 + u) - 0)); [assumption | lia |]. intros k Hk.
    pose proof (f_w _ _ t0_fair k). pose proof (f_v _ _ t0_fair). pose proof (mx_pos 0%nat). assert (0 <= L * v t0) by nia.
    unfold term, E, weight. simpl. apply Z.mul_le_mono_nonneg_l; [assumption |].
    assert (0 <= low init); [| unfold init in *; lia].
    apply low_glb; [unfold fu; simpl; rewrite Z.div_0_l; lia |]. intros b [[_ [=]] _].
  - pose proof (sound _ Hr). split; [eapply Lemma2_step | eapply T4_step]; eassumption.
Qed.

(** V is at most [lam], less the waiting head, after any rounded finish. *)
Theorem theorem4_strong st q : reachable st -> active st q -> V st <= Rf st q + lam st - hd st q * v (now st).
Proof.
  intros Hr Hq. pose proof (sound _ Hr) as Hs. destruct (theorem4 _ Hr) as [H2 H4].
  pose proof (s_head _ Hs q (proj2 Hq)) as [_ Hh].
  destruct (due st q (hd st q) (Rf st q) Hs H2 H4 Hq ltac:(lia) ltac:(lia)) as (_ & H & _). lia.
Qed.

(** * How far a flow is ahead *)

(** DS-, by flow and cost; the largest lead by any cost that a flow has. *)
Variable early : nat -> Z -> Z.
Hypothesis rs_early : forall k c s, s <= rs k c s + early k c.
Variable lead : nat -> Z.
Definition covers_lead st := forall k, early k (cost st k) + mx k * (cost st k - v (now st)) <= lead k.

(** A run in which each flow's costs keep to its lead. *)
Inductive covered : state -> Prop :=
| c_init : covers_lead init -> covered init
| c_step st st' k l : covered st -> step st st' k l -> covers_lead st' -> covered st'.

Lemma covered_reachable st : covered st -> reachable st.
Proof. induction 1 as [| st st' k l H IH Hs _]; [constructor | econstructor; eassumption]. Qed.

Theorem ahead st : covered st -> forall k, S st k - V st <= Z.max 0 (lead k).
Proof.
  induction 1 as [H0 | st st' i l Hcov IH H _]; intros k; [simpl; lia |].
  pose proof (covered_reachable _ Hcov) as Hr. pose proof (sound _ Hr) as Hs.
  assert (Hcl : covers_lead st) by (inversion Hcov; assumption). specialize (IH k).
  pose proof (f_v _ _ (s_fair _ Hs)) as Hv0. pose proof (f_c _ _ (s_fair _ Hs)) as Hc0.
  assert (Hserved : forall l, elig st i -> 0 < l <= hd st i -> S st i + l * cost st i - (V st + l * v (now st)) <= Z.max 0 (lead i)).
  { clear - Hs Hcl Hc0 rs_early. intros l He Hlen. specialize (Hcl i). pose proof (s_head _ Hs i (proj2 (proj1 He))). destruct He as [_ He].
    unfold Rs in He. pose proof (rs_early i (cost st i) (S st i)). specialize (Hc0 i).
    assert (l * (cost st i - v (now st)) <= mx i * (cost st i - v (now st))).
    { unfold cost. apply Z.mul_le_mono_nonneg_r; lia. } lia. }
  steps H.
  - at_flow k i; lia.
  - assert (0 < l * v t) by nia. at_flow k i; [apply (Hserved l He Hl) | lia].
  - pose proof (fu_le to). unfold Rs, cost in *. simpl in *. lia.
  - lia.
  - at_flow k i; lia.
  - lia.
  - assert (0 < l * v t) by nia. at_flow k i; [specialize (Hserved l He Hl); unfold cost in Hserved; simpl in Hserved; lia | lia].
Qed.

(** * The promise *)

(** A run in which [k] is always backlogged and keeps its weight, at any changes of others. [tv] is the work of the link,
    each byte times [v] of that moment, and [tk] is the work of [k]. *)
Inductive run k : state -> state -> Z -> Z -> Prop :=
| run_refl st : active st k -> run k st st 0 0
| run_step st0 st st' tv tk i l :
    run k st0 st tv tk -> step st st' i l -> active st' k -> cost st' k = cost st k ->
    S st' k = S st k + (if Nat.eqb i k then l else 0) * cost st k ->
    run k st0 st' (tv + l * v (now st)) (tk + if Nat.eqb i k then l else 0).

Lemma run_adds k st0 st tv tk :
  reachable st0 -> run k st0 st tv tk ->
  reachable st /\ active st k /\ cost st k = cost st0 k /\ V st0 + tv <= V st /\ S st k = S st0 k + tk * cost st k.
Proof.
  intros Hr H. induction H as [st Ha | st0 st st' tv tk i l H IH Hs Ha Hc HS].
  - split; [assumption |]. split; [assumption |]. repeat split; lia.
  - destruct (IH Hr) as (Hr' & Hact & Hcost & HV & HSk). split; [econstructor; eassumption |]. split; [assumption |].
    split; [congruence |]. split.
    + clear - HV Hs u_pos. steps Hs; try lia. pose proof (fu_le to). unfold Rs, cost in *. simpl in *. lia.
    + rewrite HS, Hc, HSk. lia.
Qed.

(** B-WFI across changes. [late] is the rounding of the finish, from S: DS+ and, if that counts from F, the head. *)
Theorem b_wfi k st0 st tv tk late :
  covered st0 -> run k st0 st tv tk -> Rf st k <= S st k + late ->
  tv <= tk * cost st k + Z.max 0 (lead k) + late + lam st - hd st k * v (now st).
Proof.
  intros Hc H Hlate. pose proof (covered_reachable _ Hc) as Hr. destruct (run_adds _ _ _ _ _ Hr H) as (Hr' & Ha & _ & HV & HS).
  pose proof (theorem4_strong _ _ Hr' Ha). pose proof (ahead _ Hc k). lia.
Qed.

(** T-WFI across changes, until [k] sends its head. *)
Theorem t_wfi k st0 st tv tk late :
  covered st0 -> run k st0 st tv tk -> Rf st k <= S st k + hd st k * cost st k + late ->
  tv + hd st k * v (now st) <= (tk + hd st k) * cost st k + Z.max 0 (lead k) + late + lam st.
Proof. intros Hc H Hlate. pose proof (b_wfi k st0 st tv tk (hd st k * cost st k + late) Hc H ltac:(lia)). lia. Qed.

(** * The cost of a change to the others *)

(** A flow that comes, or becomes heavier, costs nothing. *)
Theorem heavier_costs_nothing t t' d lam0 lead0 : d <= 0 -> L * v t' + u <= lam0 -> lag_after t t' d lam0 lam0 lead0.
Proof. intros Hd Hl. constructor; lia. Qed.

(** A flow that leaves, or becomes lighter, with a lead: the lag in work grows by the work of that lead. *)
Theorem lighter_costs_its_lead t t' d lam0 lam' lead0 :
  W t = W t' + d -> lam0 <= lam' -> L * v t' + u <= lam' -> W t * lam0 + d * lead0 <= W t' * lam' ->
  lag_after t t' d lam0 lam' lead0.
Proof. intros HW Hg Hl Hw. constructor; try assumption. intros Hd. rewrite HW in Hw. lia. Qed.

(** That is a longest packet at most, and a slot, of a flow of weight [d], of which a byte costs K. *)
Lemma lead_is_a_packet st k d :
  covered st -> 0 <= d -> lead k <= early k (cost st k) + mx k * cost st k -> 0 <= lead k ->
  d * Z.max 0 (S st k - V st) <= d * early k (cost st k) + mx k * (d * cost st k).
Proof.
  intros Hc Hd Hl Hp. pose proof (ahead _ Hc k).
  assert (d * Z.max 0 (S st k - V st) <= d * (early k (cost st k) + mx k * cost st k)) by (apply Z.mul_le_mono_nonneg_l; lia). lia.
Qed.

(** WF2Q+ with known heads: a place with its old start, or a later one that is late by the same work
    ([VirtualClock::start_at_new_weight]), is one that [serve_changed] allows. *)
Lemma old_start_is_allowed st k l t' lam' s' :
  reachable st -> elig st k -> (forall x, elig st x -> Rf st k <= Rf st x) -> 0 < l <= hd st k ->
  Rf st k = S st k + l * cost st k -> S st k + l * cost st k <= s' -> lam st <= lam' ->
  let V' := V st + l * v (now st) in let S' := S st k + l * cost st k in
  V' - lam' <= s' /\ low st <= s' /\ (weight st k <= w t' k -> weight st k * (S' - V' + lam st) <= w t' k * (s' - V' + lam st)).
Proof.
  intros Hr He Hm Hl HR Hs' Hlam V' S'. pose proof (sound _ Hr) as Hs. destruct (theorem4 _ Hr) as [H2 H4].
  pose proof (after_service st k l k Hs H2 H4 He Hm Hl (proj1 He)) as Ha. pose proof (low_le st k He).
  pose proof (f_w _ _ (s_fair _ Hs) k). subst V' S'. repeat split; try lia.
  intros Hw. unfold weight in *. apply Z.mul_le_mono_nonneg; lia.
Qed.

End Changes.
