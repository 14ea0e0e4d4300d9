(** Any scheduler with timestamps that serves the smallest eligible finish first.

    One proof of Lemma 2, Theorem 4 and the bounds for WF2Q+, GFQ, S-KPS, QFQ, and for each of them over aggregates
    (SCHED+). An algorithm adds its rounding ([rs], [rf]) and its choice among the starts that [arrive] allows.

    The model follows crates/core/src/sched:
    - [arrive] is [insert] of wf2q_plus.rs, gfq.rs, s_kps.rs (S = max(F, V)) and of qfq.rs (Eq. 29, [start_time]);
      [low] is the lowest start that back-shifting may give.
    - [choose] is [select]; from then on the choice is on [hold]. A newcomer that finishes sooner changes nothing.
    - [send] is [served]: V moves by the work, packet by packet, also within the budget of an aggregate
      ([Plus::catch_up]).
    - [finish] is [reschedule] or [idle]: S moves by the charge. [hd] is the announced length: the head's own length
      ([Head::Known]), the longest packet ([Head::Longest]), the budget of an aggregate.
    - [jump] is [jump_to] where nothing is eligible (Eq. 3), [restart] is [start_busy_period].
    No weight and no set of flows changes, and timestamps do not wrap. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Import Sums.
Import ListNotations.
Open Scope Z_scope.

Section Stamps.

Variable flows : list nat.
Hypothesis nodup : NoDup flows.
(** Per flow: virtual time of a byte, weight, longest packet. *)
Variables c w mx : nat -> Z.
(** Progress of V per byte, longest packet of all, unit in which V is read, sum of weights, c at weight 1. *)
Variables v L u W K : Z.
Hypothesis v_pos : 0 < v.
Hypothesis u_pos : 0 < u.
Hypothesis W_pos : 0 < W.
Hypothesis c_over_v : forall k, v <= c k.
Hypothesis w_nonneg : forall k, 0 <= w k.
Hypothesis mx_pos : forall k, 0 < mx k <= L.
Hypothesis weights : sum w flows <= W.
(** Costs are rounded up, the clock down ([Terms::of], [VirtualClock::set_weight_sum]). *)
Hypothesis cost_up : forall k, K <= w k * c k.
Hypothesis clock_down : W * v <= K.

(** Rounded start of an exact start; rounded finish of an exact start and an announced length. *)
Variable rs : nat -> Z -> Z.
Variable rf : nat -> Z -> Z -> Z.
(** DS-, in virtual time. *)
Variable early : nat -> Z.
Hypothesis rs_before : forall k s, rs k s <= s.
Hypothesis rs_early : forall k s, s <= rs k s + early k.
Hypothesis rf_covers : forall k s h, 0 < h <= mx k -> s + h * c k <= rf k s h.
Hypothesis rf_grows : forall k s h s' h', s <= s' -> s + h * c k <= s' + h' * c k -> rf k s h <= rf k s' h'.

Definition fu x := x / u * u.

Lemma fu_le x : fu x <= x.
Proof. unfold fu. pose proof (Z.mul_div_le x u). lia. Qed.
Lemma fu_gt x : x < fu x + u.
Proof. unfold fu. pose proof (Z.mul_succ_div_gt x u). lia. Qed.
Lemma fu_grows x y : x <= y -> fu x <= fu y.
Proof. intros H. unfold fu. apply Z.mul_le_mono_nonneg_r; [lia | apply Z.div_le_mono; lia]. Qed.

(** [cur]: the flow in service, the bytes that it has sent, and V when it was chosen. *)
Record state := mk { V : Z; S : nat -> Z; act : nat -> bool; hd : nat -> Z; cur : option (nat * Z * Z) }.

Definition Rs st k := rs k (S st k).
Definition Rf st k := rf k (S st k) (hd st k).
Definition active st k := In k flows /\ act st k = true.
Definition elig st k := active st k /\ Rs st k <= V st.
Definition eligb st k := act st k && (Rs st k <=? V st).
Definition spent st k := match cur st with Some (j, x, _) => if Nat.eqb j k then x else 0 | None => 0 end.

(** The least finish of all eligible flows, or V if that is less. *)
Definition low st := fold_right (fun b acc => if eligb st b then Z.min (Rf st b) acc else acc) (fu (V st)) flows.

Inductive step : state -> state -> nat -> Z -> Prop :=
| arrive st k s h :
    In k flows -> act st k = false -> Z.max (S st k) (low st) <= s <= Z.max (S st k) (V st) -> 0 < h <= mx k ->
    step st (mk (V st) (upd (S st) k s) (upd (act st) k true) (upd (hd st) k h) (cur st)) k 0
| choose st k :
    cur st = None -> elig st k -> (forall x, elig st x -> Rf st k <= Rf st x) ->
    step st (mk (V st) (S st) (act st) (hd st) (Some (k, 0, V st))) k 0
| send st k x b l :
    cur st = Some (k, x, b) -> 0 < l -> x + l <= hd st k ->
    step st (mk (V st + l * v) (S st) (act st) (hd st) (Some (k, x + l, b))) k l
| finish st k x b more h :
    cur st = Some (k, x, b) -> 0 < h <= mx k -> hd st k <= x + h ->
    step st (mk (V st) (upd (S st) k (S st k + x * c k)) (upd (act st) k more) (upd (hd st) k h) None) k 0
| jump st a to :
    cur st = None -> active st a -> (forall x, active st x -> Rs st a <= Rs st x) -> V st < Rs st a -> fu to = Rs st a ->
    step st (mk to (S st) (act st) (hd st) None) a 0
| restart st to k :
    cur st = None -> (forall x, In x flows -> act st x = false) -> V st <= to ->
    step st (mk to (S st) (act st) (hd st) None) k 0.

Definition init := mk 0 (fun _ => 0) (fun _ => false) (fun _ => 0) None.

Inductive reachable : state -> Prop :=
| r_init : reachable init
| r_step st st' k l : reachable st -> step st st' k l -> reachable st'.

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

(** * Invariants of heads and of the flow in service *)

(** A flow with a smaller finish than the flow in service starts no earlier than the choice. *)
Record Sound st : Prop := {
  s_head : forall k, act st k = true -> In k flows /\ 0 < hd st k <= mx k;
  s_cur : forall k x b, cur st = Some (k, x, b) ->
    active st k /\ 0 <= x <= hd st k /\ V st = b + x * v /\ Rs st k <= b /\
    forall j, active st j -> j <> k -> Rf st k <= Rf st j \/ b - u <= S st j }.

Lemma after_start st k : Sound st -> active st k -> S st k < Rf st k /\ S st k + hd st k * c k <= Rf st k.
Proof.
  intros H [_ Hk]. destruct (s_head _ H k Hk) as [_ Hh]. pose proof (rf_covers k (S st k) (hd st k) Hh).
  pose proof (c_over_v k). unfold Rf. nia.
Qed.

Ltac at_flow x k := destruct (Nat.eq_dec x k) as [-> | ?]; [rewrite ?upd_same in * | rewrite ?upd_other in * by assumption].

Lemma sound_init : Sound init.
Proof. constructor; simpl; [discriminate | discriminate]. Qed.

(** The choice stands against any flow that starts at [low] or later. *)
Lemma low_of_choice st k x b : Sound st -> cur st = Some (k, x, b) -> Z.min (Rf st k) (b - u) <= low st.
Proof.
  intros Hs Hc. destruct (s_cur _ Hs k x b Hc) as (Hk & Hx & HV & HR & Ho).
  apply low_glb; [pose proof (fu_gt (V st)); assert (0 <= x * v) by nia; lia |].
  intros y Hy. destruct (Nat.eq_dec y k) as [-> | Hyk]; [lia |].
  destruct (Ho y (proj1 Hy) Hyk); [lia |]. pose proof (after_start st y Hs (proj1 Hy)). lia.
Qed.

Ltac steps H := inversion H as
  [s0 k0 s h Hf Ha Hst Hh | s0 k0 Hc He Hm | s0 k0 x b l0 Hc Hl Hx | s0 k0 x b more h Hc Hh Hn
  | s0 k0 to Hc Ha Hm Hv Hto | s0 to k0 Hc Hno Hto]; subst.

Lemma sound_step st st' i l : Sound st -> step st st' i l -> Sound st'.
Proof.
  intros Hs H. steps H; constructor; simpl.
  - intros k Hk. at_flow k i; [auto | apply (s_head _ Hs k Hk)].
  - intros k x b Hc. pose proof (low_of_choice st k x b Hs Hc) as Hlow.
    destruct (s_cur _ Hs k x b Hc) as ([Hk Hka] & Hx & HV & HR & Ho).
    assert (Hki : k <> i) by (intros ->; congruence). unfold active, Rf, Rs. simpl. rewrite !upd_other by assumption.
    repeat split; try assumption; try lia.
    intros j [Hj Hja] Hjk. simpl in Hja. at_flow j i; [| apply Ho; [split |]; assumption].
    pose proof (rf_covers i s h Hh). pose proof (c_over_v i). fold (Rf st k).
    destruct (Z_lt_le_dec s (b - u)); [left; nia | right; lia].
  - apply (s_head _ Hs).
  - intros k x b E. injection E as <- <- <-. destruct He as [He1 He2].
    pose proof (s_head _ Hs i (proj2 He1)). repeat split; try apply He1; try lia; [assumption |].
    intros j Hj Hji. change (Rf st i <= Rf st j \/ V st - u <= S st j).
    destruct (Z_le_gt_dec (Rs st j) (V st)); [left; apply Hm; split; assumption |].
    right. pose proof (rs_before j (S st j)). unfold Rs in *. lia.
  - apply (s_head _ Hs).
  - intros k x' b' E. injection E as <- <- <-. destruct (s_cur _ Hs i x b Hc) as (Hk & Hx0 & HV & HR & Ho).
    repeat split; try apply Hk; try lia; [exact HR | exact Ho].
  - intros k Hk. at_flow k i; [| apply (s_head _ Hs k Hk)].
    destruct (s_cur _ Hs i x b Hc) as ([Hi _] & _). auto.
  - discriminate.
  - apply (s_head _ Hs).
  - discriminate.
  - apply (s_head _ Hs).
  - discriminate.
Qed.

Theorem sound st : reachable st -> Sound st.
Proof. induction 1; [apply sound_init | eapply sound_step; eassumption]. Qed.

(** * [low] never falls *)

Lemma finish_grows st k x h :
  Sound st -> active st k -> 0 <= x -> hd st k <= x + h -> Rf st k <= rf k (S st k + x * c k) h.
Proof. intros Hs Hk Hx Hn. pose proof (c_over_v k). apply rf_grows; nia. Qed.

Lemma low_grows st st' i l : Sound st -> step st st' i l -> low st <= low st'.
Proof.
  intros Hs H. pose proof (low_le_V st) as HV. pose proof (proj1 (low_spec st)) as Hfu.
  (* flows that were eligible before, or start after V *)
  assert (Hold : forall b, active st b -> low st <= Rf st b).
  { intros b Hb. destruct (Z_le_gt_dec (Rs st b) (V st)); [apply low_le; split; assumption |].
    pose proof (after_start st b Hs Hb). pose proof (rs_before b (S st b)). unfold Rs in *. lia. }
  steps H; apply low_glb; simpl; try assumption.
  - intros k [[Hk Hka] _]. unfold Rf. simpl in *. at_flow k i; [| apply Hold; split; assumption].
    pose proof (rf_covers i s h Hh). pose proof (c_over_v i). nia.
  - intros k [Hk _]. apply (Hold k Hk).
  - assert (0 < l * v) by nia. pose proof (fu_grows (V st) (V st + l * v)). lia.
  - intros k [Hk _]. apply (Hold k Hk).
  - intros k [[Hk Hka] _]. unfold Rf. simpl in *. at_flow k i; [| apply Hold; split; assumption].
    destruct (s_cur _ Hs i x b Hc) as (Hki & Hx0 & _).
    pose proof (finish_grows st i x h Hs Hki ltac:(lia) Hn). specialize (Hold i Hki). lia.
  - lia.
  - intros k [Hk _]. apply (Hold k Hk).
  - pose proof (fu_grows (V st) to). lia.
  - intros k [Hk _]. apply (Hold k Hk).
Qed.

(** * Lemma 2 *)

(** Where an idle flow would start at the earliest. *)
Definition E st k := Z.max (S st k) (low st).

(** As l = phi (F - S), the report's l + phi (M - F) is phi (M - S); each sent packet counts at once. *)
Definition term st M k :=
  if act st k then (if Rf st k <=? M then w k * (M - S st k - spent st k * c k) else 0) else w k * Z.max 0 (M - E st k).

Definition Lemma2 st := forall M, V st <= M + L * v + u -> sum (term st M) flows <= W * (M + L * v + u - V st).

Lemma spent_most st k : Sound st -> act st k = true -> 0 <= spent st k <= hd st k.
Proof.
  intros Hs Hk. unfold spent. pose proof (s_head _ Hs k Hk). destruct (cur st) as [[[j x] b] |] eqn:Hc; [| lia].
  destruct (Nat.eqb_spec j k) as [-> |]; [| lia]. destruct (s_cur _ Hs k x b Hc) as (_ & Hx & _). lia.
Qed.

Lemma spent_same st k x b : cur st = Some (k, x, b) -> spent st k = x.
Proof. intros H. unfold spent. now rewrite H, Nat.eqb_refl. Qed.

(** The term of an active flow that finishes by M: at least the rest of its head. *)
Lemma term_head st M k :
  Sound st -> act st k = true -> Rf st k <= M -> w k * ((hd st k - spent st k) * c k) <= term st M k.
Proof.
  intros Hs Hk HM. unfold term. rewrite Hk. pose proof HM as HM'. apply Z.leb_le in HM'. rewrite HM'.
  apply Z.mul_le_mono_nonneg_l; [apply w_nonneg |].
  pose proof (after_start st k Hs (conj (proj1 (s_head _ Hs k Hk)) Hk)). lia.
Qed.

Lemma term_nonneg st M k : Sound st -> 0 <= term st M k.
Proof.
  intros Hs. pose proof (w_nonneg k). destruct (act st k) eqn:Hk.
  - destruct (Z_le_gt_dec (Rf st k) M) as [HM | HM].
    + pose proof (term_head st M k Hs Hk HM). pose proof (spent_most st k Hs Hk). pose proof (c_over_v k).
      assert (0 <= w k * ((hd st k - spent st k) * c k)); [| lia].
      apply Z.mul_nonneg_nonneg; [assumption |]. apply Z.mul_nonneg_nonneg; lia.
    + unfold term. rewrite Hk. assert (Rf st k <=? M = false) by (apply Z.leb_gt; lia). now rewrite H0.
  - unfold term. rewrite Hk. apply Z.mul_nonneg_nonneg; lia.
Qed.

Lemma all_after (f : nat -> Z) y :
  (forall k, In k flows -> f k <= w k * Z.max 0 y) -> sum f flows <= W * Z.max 0 y.
Proof.
  intros H. eapply Z.le_trans; [apply sum_le, H |]. rewrite sum_scale. pose proof weights.
  apply Z.mul_le_mono_nonneg_r; lia.
Qed.

(** If all flows that finish by M start at [y] or later. *)
Lemma all_late st M y :
  Sound st -> Z.min y M <= low st -> (forall k, active st k -> Rf st k <= M -> y <= S st k) ->
  sum (term st M) flows <= W * Z.max 0 (M - y).
Proof.
  intros Hs Hlow Ha. apply all_after. intros k Hk. pose proof (w_nonneg k) as Hw. unfold term.
  destruct (act st k) eqn:Hka.
  - pose proof (spent_most st k Hs Hka). pose proof (c_over_v k).
    assert (0 <= spent st k * c k) by (apply Z.mul_nonneg_nonneg; lia).
    destruct (Rf st k <=? M) eqn:HM; [| apply Z.mul_nonneg_nonneg; lia].
    apply Z.leb_le in HM. specialize (Ha k (conj Hk Hka) HM). apply Z.mul_le_mono_nonneg_l; lia.
  - unfold E. apply Z.mul_le_mono_nonneg_l; lia.
Qed.

Lemma term_other st st' i l M k :
  Sound st -> step st st' i l -> S st' k = S st k -> act st' k = act st k -> hd st' k = hd st k ->
  spent st' k = spent st k -> term st' M k <= term st M k.
Proof.
  intros Hs H HS HA HH Hsp. unfold term, E, Rf. rewrite HA, HS, HH, Hsp. destruct (act st k); [lia |].
  pose proof (low_grows _ _ _ _ Hs H). pose proof (w_nonneg k). apply Z.mul_le_mono_nonneg_l; lia.
Qed.

Lemma spent_other st k x b j : cur st = Some (k, x, b) -> j <> k -> spent st j = 0.
Proof. intros H Hj. unfold spent. rewrite H. destruct (Nat.eqb_spec k j); [congruence | reflexivity]. Qed.

Lemma Lemma2_init : Lemma2 init.
Proof.
  intros M HM. simpl in HM. eapply Z.le_trans; [apply (all_late init M 0 sound_init) |].
  - assert (0 <= low init); [| lia]. apply low_glb; [unfold fu; simpl; rewrite Z.div_0_l; lia |].
    intros b [[_ [=]] _].
  - intros k [_ [=]].
  - simpl. assert (0 <= L * v) by (pose proof (mx_pos 0%nat); nia). apply Z.mul_le_mono_nonneg_l; lia.
Qed.

(** A service of a flow that finishes after M. *)
Lemma service_late st st' i l k x b M :
  Sound st -> step st st' i l -> cur st = Some (k, x, b) ->
  M < Rf st k -> V st' <= b + L * v -> V st' <= M + L * v + u ->
  (forall j, active st' j -> j <> k -> active st j /\ S st' j = S st j /\ hd st' j = hd st j) ->
  (active st' k -> Rf st k <= Rf st' k) ->
  sum (term st' M) flows <= W * (M + L * v + u - V st').
Proof.
  intros Hs H Hc HM HV HVM Hj Hk. pose proof (low_of_choice st k x b Hs Hc) as Hlow.
  pose proof (low_grows _ _ _ _ Hs H). destruct (s_cur _ Hs k x b Hc) as (_ & _ & _ & _ & Ho).
  eapply Z.le_trans; [apply (all_late st' M (b - u)) | apply Z.mul_le_mono_nonneg_l; lia].
  - eapply sound_step; eassumption.
  - lia.
  - intros j Hja HRf. destruct (Nat.eq_dec j k) as [-> | Hjk]; [specialize (Hk Hja); lia |].
    destruct (Hj j Hja Hjk) as (Hja' & HS & HH). rewrite HS. destruct (Ho j Hja' Hjk); [| assumption].
    assert (Rf st' j = Rf st j) by (unfold Rf; now rewrite HS, HH). lia.
Qed.

Lemma Lemma2_step st st' i l : Sound st -> Lemma2 st -> step st st' i l -> Lemma2 st'.
Proof.
  intros Hs H2 H M HM. pose proof H as Hstep. pose proof (w_nonneg i) as Hwi. pose proof (c_over_v i) as Hci.
  steps H.
  - (* arrival *)
    eapply Z.le_trans; [| apply (H2 M HM)]. apply sum_le. intros k Hk.
    destruct (Nat.eq_dec k i) as [-> | Hki].
    + assert (Hsp : spent st i = 0).
      { unfold spent. destruct (cur st) as [[[j x] b] |] eqn:Hc; [| reflexivity].
        destruct (Nat.eqb_spec j i) as [-> |]; [| reflexivity].
        destruct (s_cur _ Hs i x b Hc) as ([_ Hact] & _). congruence. }
      unfold term. simpl. unfold Rf, spent in *. simpl. rewrite !upd_same, Ha. rewrite Hsp.
      destruct (rf i s h <=? M); [apply Z.mul_le_mono_nonneg_l; unfold E; lia | apply Z.mul_nonneg_nonneg; lia].
    + eapply term_other; try eassumption; simpl; try (now rewrite upd_other). reflexivity.
  - (* choice *)
    eapply Z.le_trans; [| apply (H2 M HM)]. apply sum_le. intros k Hk.
    eapply term_other; try eassumption; try reflexivity. unfold spent. simpl. rewrite Hc.
    destruct (Nat.eqb i k); reflexivity.
  - (* a packet *)
    destruct (s_cur _ Hs i x b Hc) as ([Hif Hia] & Hx0 & HV & HR & Ho). pose proof (s_head _ Hs i Hia) as [_ Hhd].
    pose proof (mx_pos i). simpl in HM. assert (Hlv : 0 < l * v) by nia.
    destruct (Z_le_gt_dec (Rf st i) M) as [Hle | Hgt].
    + assert (Hfall : sum (term (mk (V st + l * v) (S st) (act st) (hd st) (Some (i, x + l, b))) M) flows
        + w i * (l * c i) <= sum (term st M) flows).
      { apply sum_less with (k := i); [assumption | assumption | |].
        - unfold term, Rf, spent. simpl. rewrite Hia, Hc, Nat.eqb_refl. fold (Rf st i). apply Z.leb_le in Hle. rewrite Hle. lia.
        - intros k Hk Hki. eapply term_other; try eassumption; try reflexivity.
          unfold spent. simpl. rewrite Hc. destruct (Nat.eqb_spec i k); [congruence | reflexivity]. }
      specialize (H2 M ltac:(lia)). pose proof (cost_up i) as Hcost. simpl.
      assert (W * v * l <= w i * c i * l) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
    + eapply (service_late st _ i l i x b); try eassumption; simpl; try lia.
      * assert ((x + l) * v <= L * v) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
      * intros j Hj _. split; [exact Hj | split; reflexivity].
      * intros _. unfold Rf. simpl. lia.
  - (* the end of a service *)
    destruct (s_cur _ Hs i x b Hc) as ([Hif Hia] & Hx0 & HV & HR & Ho). pose proof (s_head _ Hs i Hia) as [_ Hhd].
    pose proof (mx_pos i). simpl in HM.
    pose proof (finish_grows st i x h Hs (conj Hif Hia) ltac:(lia) Hn) as Hup.
    destruct (Z_le_gt_dec (Rf st i) M) as [Hle | Hgt].
    + eapply Z.le_trans; [| apply (H2 M HM)]. apply sum_le. intros k Hk.
      destruct (Nat.eq_dec k i) as [-> | Hki].
      * pose proof (term_nonneg st M i Hs) as Hpos. revert Hpos. unfold term, Rf, spent, E. simpl.
        rewrite !upd_same, Hia, Hc, Nat.eqb_refl. fold (Rf st i). pose proof Hle as Hle'. apply Z.leb_le in Hle'. rewrite Hle'.
        intros Hpos. pose proof (after_start st i Hs (conj Hif Hia)) as [_ Hafter].
        assert (x * c i <= hd st i * c i) by (apply Z.mul_le_mono_nonneg_r; lia).
        destruct more; [destruct (rf i (S st i + x * c i) h <=? M); [lia | assumption] |].
        apply Z.mul_le_mono_nonneg_l; lia.
      * eapply term_other; try eassumption; simpl; try (now rewrite upd_other).
        unfold spent. simpl. rewrite Hc. destruct (Nat.eqb_spec i k); [congruence | reflexivity].
    + eapply (service_late st _ i 0 i x b); try eassumption; simpl; try lia.
      * assert (x * v <= L * v) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
      * intros j [Hj Hja] Hji. simpl in Hja. rewrite !upd_other in * by assumption. repeat split; assumption.
      * intros _. unfold Rf. simpl. rewrite !upd_same. exact Hup.
  - (* jump *)
    simpl in HM. pose proof (fu_le to). pose proof (fu_gt to).
    assert (HL : 0 <= L * v) by (pose proof (mx_pos i); nia).
    eapply Z.le_trans; [apply (all_late _ M (Rs st i)) | simpl; apply Z.mul_le_mono_nonneg_l; lia].
    + eapply sound_step; eassumption.
    + match goal with |- _ <= low ?s' => assert (Rs st i <= low s'); [| lia] end.
      apply low_glb; [simpl; lia |]. intros k [Hk _]. specialize (Hm k Hk).
      pose proof (after_start st k Hs Hk). pose proof (rs_before k (S st k)). unfold Rs, Rf in *. simpl. lia.
    + intros k Hk _. specialize (Hm k Hk). pose proof (rs_before k (S st k)). unfold Rs in *. simpl. lia.
  - (* a busy period starts *)
    simpl in HM. assert (HL : 0 <= L * v) by (pose proof (mx_pos i); nia).
    eapply Z.le_trans; [apply (all_late _ M (to - u)) | simpl; apply Z.mul_le_mono_nonneg_l; lia].
    + eapply sound_step; eassumption.
    + match goal with |- _ <= low ?s' => assert (to - u <= low s'); [| lia] end.
      apply low_glb; [pose proof (fu_gt to); simpl; lia |]. intros k [[Hk Hka] _]. simpl in Hka. rewrite (Hno k Hk) in Hka. discriminate.
    + intros k [Hk Hka] _. simpl in Hka. rewrite (Hno k Hk) in Hka. discriminate.
Qed.

Theorem lemma2 st : reachable st -> Lemma2 st.
Proof.
  induction 1 as [| st st' i l Hr IH Hs]; [apply Lemma2_init | eapply Lemma2_step; try eassumption; now apply sound].
Qed.

(** * Theorem 4 *)

Definition T4 st := forall q, active st q -> V st <= Rf st q + L * v + u.

Lemma T4_step st st' i l : Sound st -> Lemma2 st -> T4 st -> step st st' i l -> T4 st'.
Proof.
  intros Hs H2 H4 H q Hq. assert (HL : 0 <= L * v) by (pose proof (mx_pos 0%nat); nia). steps H.
  - destruct Hq as [Hqf Hqa]. unfold Rf. simpl in *. at_flow q i; [| apply H4; split; assumption].
    pose proof (rf_covers i s h Hh). pose proof (c_over_v i).
    assert (V st - L * v - u <= low st); [| nia].
    apply low_glb; [pose proof (fu_gt (V st)); lia |]. intros b [Hb _]. specialize (H4 b Hb). lia.
  - apply (H4 q Hq).
  - destruct (s_cur _ Hs i x b Hc) as ([Hif Hia] & Hx0 & HV & HR & Ho). pose proof (s_head _ Hs i Hia) as [_ Hhd].
    pose proof (mx_pos i). pose proof (c_over_v i) as Hci. change (V st + l * v <= Rf st q + L * v + u).
    assert (Hserved : forall M, V st <= M + L * v + u -> Rf st i <= M -> V st + l * v <= M + L * v + u).
    { intros M HM HR'. specialize (H2 M HM).
      assert (Ht : w i * (l * c i) <= sum (term st M) flows).
      { eapply Z.le_trans; [| apply sum_ge_term with (k := i)]; [| assumption | intros; now apply term_nonneg].
        eapply Z.le_trans; [| now apply term_head]. apply Z.mul_le_mono_nonneg_l; [apply w_nonneg |].
        rewrite (spent_same _ _ _ _ Hc). apply Z.mul_le_mono_nonneg_r; lia. }
      pose proof (cost_up i) as Hcost. assert (W * v * l <= w i * c i * l) by (apply Z.mul_le_mono_nonneg_r; lia).
      assert (W * (l * v) <= W * (M + L * v + u - V st)) by lia.
      assert (l * v <= M + L * v + u - V st) by nia. lia. }
    change (active st q) in Hq. destruct (Nat.eq_dec q i) as [-> | Hqi]; [apply Hserved; [now apply H4 | lia] |].
    destruct (Ho q Hq Hqi); [apply Hserved; [now apply H4 | assumption] |].
    pose proof (after_start st q Hs Hq).
    assert ((x + l) * v <= L * v) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
  - destruct Hq as [Hqf Hqa]. unfold Rf. simpl in *. at_flow q i; [| apply H4; split; assumption].
    destruct (s_cur _ Hs i x b Hc) as (Hk & Hx0 & _). specialize (H4 i Hk).
    pose proof (finish_grows st i x h Hs Hk ltac:(lia) Hn). lia.
  - change (to <= Rf st q + L * v + u). change (active st q) in Hq. specialize (Hm q Hq). pose proof (fu_gt to).
    pose proof (after_start st q Hs Hq). pose proof (rs_before q (S st q)). unfold Rs in *. lia.
  - destruct Hq as [Hqf Hqa]. simpl in Hqa. rewrite (Hno q Hqf) in Hqa. discriminate.
Qed.

Theorem theorem4 st : reachable st -> T4 st.
Proof.
  induction 1 as [| st st' i l Hr IH Hs]; [intros q [_ [=]] |].
  eapply T4_step; try eassumption; [now apply sound | now apply lemma2].
Qed.

(** The same with the rest of the waiting head in the sum. *)
Theorem theorem4_strong st q :
  reachable st -> active st q -> V st <= Rf st q + (L - (hd st q - spent st q)) * v + u.
Proof.
  intros Hr Hq. pose proof (theorem4 _ Hr q Hq) as H4. pose proof (lemma2 _ Hr (Rf st q) H4) as H2.
  pose proof (sound _ Hr) as Hs. destruct Hq as [Hqf Hqa]. set (l := hd st q - spent st q).
  pose proof (spent_most st q Hs Hqa). assert (0 <= l) by (unfold l; lia).
  assert (Ht : w q * (l * c q) <= sum (term st (Rf st q)) flows).
  { eapply Z.le_trans; [| apply sum_ge_term with (k := q)]; [| assumption | intros; now apply term_nonneg].
    apply term_head; [assumption | assumption | lia]. }
  pose proof (cost_up q) as Hcost. assert (W * v * l <= w q * c q * l) by (apply Z.mul_le_mono_nonneg_r; lia).
  assert (W * (l * v) <= W * (Rf st q + L * v + u - V st)) by lia.
  assert (l * v <= Rf st q + L * v + u - V st) by nia. lia.
Qed.

(** * How far a flow is ahead *)

(** Its start, with the sent part of its head. *)
Definition X st k := S st k + spent st k * c k.

(** S - V <= DS- + (1/phi - 1) L_k (QFQ+ paper, Lemma 5). *)
Definition Ahead st := forall k, X st k <= V st + early k + mx k * (c k - v).

Theorem ahead st : reachable st -> Ahead st.
Proof.
  assert (Hb : forall k y, 0 <= y <= mx k -> 0 <= y * (c k - v) <= mx k * (c k - v)).
  { intros k y Hy. pose proof (c_over_v k). split; [apply Z.mul_nonneg_nonneg; lia | apply Z.mul_le_mono_nonneg_r; lia]. }
  assert (Hearly : forall k, 0 <= early k).
  { intros k. pose proof (rs_before k 0). pose proof (rs_early k 0). lia. }
  induction 1 as [| st st' i l Hr IH H]; intros k; pose proof (mx_pos k) as Hmx; specialize (Hearly k).
  - unfold X, spent. simpl. specialize (Hb k 0). lia.
  - pose proof (sound _ Hr) as Hs. specialize (IH k). pose proof (Hb k 0 ltac:(lia)). unfold X in *. steps H; simpl.
    + assert (Hsp : spent (mk (V st) (upd (S st) i s) (upd (act st) i true) (upd (hd st) i h) (cur st)) k = spent st k)
        by reflexivity. rewrite Hsp. at_flow k i; [| lia].
      assert (Hz : spent st i = 0).
      { unfold spent. destruct (cur st) as [[[j x] b] |] eqn:Hc; [| reflexivity].
        destruct (Nat.eqb_spec j i) as [-> |]; [| reflexivity].
        destruct (s_cur _ Hs i x b Hc) as ([_ Hact] & _). congruence. }
      rewrite Hz in *. lia.
    + unfold spent in *. simpl. rewrite Hc in IH. destruct (Nat.eqb i k); lia.
    + destruct (s_cur _ Hs i x b Hc) as (Hk & Hx0 & HV & HR & _). pose proof (s_head _ Hs i (proj2 Hk)).
      assert (0 < l * v) by nia. unfold spent in *. simpl. rewrite Hc in IH.
      destruct (Nat.eqb_spec i k) as [-> |]; [| lia].
      pose proof (rs_early k (S st k)). unfold Rs in HR. pose proof (Hb k (x + l) ltac:(lia)). lia.
    + unfold spent in *. simpl. rewrite Hc in IH. at_flow k i; [rewrite Nat.eqb_refl in IH; lia |].
      destruct (Nat.eqb_spec i k); [congruence | lia].
    + unfold spent in *. simpl. rewrite Hc in IH. pose proof (fu_le to). lia.
    + unfold spent in *. simpl. rewrite Hc in IH. lia.
Qed.

(** * A run in which [k] always has something to send: the work of the link, and of [k]. *)

Inductive run k : state -> state -> Z -> Z -> Prop :=
| run_refl st : active st k -> run k st st 0 0
| run_step st0 st st' t tk i l :
    run k st0 st t tk -> step st st' i l -> active st' k -> run k st0 st' (t + l) (tk + if Nat.eqb i k then l else 0).

Lemma run_reachable k st0 st t tk : reachable st0 -> run k st0 st t tk -> reachable st.
Proof.
  intros Hr H. induction H as [| st0 st st' t tk i l H IH Hs Hk]; [assumption |].
  eapply r_step; [apply IH; assumption | eassumption].
Qed.

Lemma run_active k st0 st t tk : run k st0 st t tk -> active st k.
Proof. destruct 1; assumption. Qed.

Lemma run_adds k st0 st t tk :
  reachable st0 -> run k st0 st t tk -> V st0 + t * v <= V st /\ X st k = X st0 k + tk * c k.
Proof.
  intros Hr H. induction H as [| st0 st st' t tk i l H IH Hstep Hk]; [lia |]. specialize (IH Hr).
  pose proof (sound _ (run_reachable _ _ _ _ _ Hr H)) as Hs. pose proof (run_active _ _ _ _ _ H) as Hka.
  unfold X in *. steps Hstep; simpl.
  - assert (Hik : i <> k) by (intros ->; destruct Hka; congruence).
    rewrite upd_other by congruence. destruct (Nat.eqb_spec i k); [contradiction |].
    change (spent _ k) with (spent st k) at 1. lia.
  - unfold spent in *. simpl. rewrite Hc in IH. destruct (Nat.eqb i k); lia.
  - unfold spent in *. simpl. rewrite Hc in IH. destruct (Nat.eqb i k); lia.
  - unfold spent in *. simpl. rewrite Hc in IH. destruct (Nat.eqb_spec i k) as [-> | Hik].
    + rewrite upd_same. lia.
    + rewrite upd_other by congruence. lia.
  - unfold spent in *. simpl. rewrite Hc in IH. pose proof (fu_le to). destruct (Nat.eqb i k); lia.
  - unfold spent in *. simpl. rewrite Hc in IH. destruct (Nat.eqb i k); lia.
Qed.

(** * The bounds, in virtual time: a byte of the link is [v], one of the flow is [c k], which is [v] / phi *)

(** DS+ counts from F: F^ - F <= late. *)
Section AfterFinish.
Variable late : nat -> Z.
Hypothesis rf_late : forall k s h, rf k s h <= s + h * c k + late k.

Lemma lag_after_finish st k :
  reachable st -> active st k -> V st <= X st k + late k + (hd st k - spent st k) * (c k - v) + L * v + u.
Proof.
  intros Hr Hk. pose proof (theorem4_strong _ _ Hr Hk). pose proof (rf_late k (S st k) (hd st k)).
  unfold X, Rf in *. lia.
Qed.

(** B-WFI ([bounds::sched]): DS- + DS+ + 2 L_k (1/phi - 1) + L, times phi. *)
Theorem b_wfi_after_finish k st0 st t tk :
  reachable st0 -> run k st0 st t tk ->
  t * v <= tk * c k + early k + late k + 2 * mx k * (c k - v) + L * v + u.
Proof.
  intros Hr H. destruct (run_adds _ _ _ _ _ Hr H) as [HV HX]. pose proof (ahead _ Hr k) as Ha.
  pose proof (run_active _ _ _ _ _ H) as Hk. pose proof (run_reachable _ _ _ _ _ Hr H) as Hr'.
  pose proof (lag_after_finish _ _ Hr' Hk) as Hlag. pose proof (sound _ Hr') as Hs.
  pose proof (s_head _ Hs k (proj2 Hk)). pose proof (spent_most _ _ Hs (proj2 Hk)). pose proof (c_over_v k).
  assert ((hd st k - spent st k) * (c k - v) <= mx k * (c k - v)) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
Qed.

(** T-WFI: DS- + DS+ + L_k (1/phi - 1) + L, until a packet of length [l] is sent, with [tk + l] bytes of its flow up to
    its end. The last term is the excess of the announced length: 0 for [Head::Known]. *)
Theorem t_wfi_after_finish k st0 st st' t tk l :
  reachable st0 -> run k st0 st t tk -> step st st' k l ->
  (t + l) * v <= (tk + l) * c k + early k + late k + mx k * (c k - v) + L * v + u
                 + (hd st k - spent st k - l) * (c k - v).
Proof.
  intros Hr H _. destruct (run_adds _ _ _ _ _ Hr H) as [HV HX]. pose proof (ahead _ Hr k) as Ha.
  pose proof (run_active _ _ _ _ _ H) as Hk. pose proof (run_reachable _ _ _ _ _ Hr H) as Hr'.
  pose proof (lag_after_finish _ _ Hr' Hk) as Hlag. lia.
Qed.
End AfterFinish.

(** DS+ counts from S: F^ - S <= late, however short the packet. *)
Section AfterStart.
Variable late : nat -> Z.
Hypothesis rf_late : forall k s h, rf k s h <= s + late k.

Lemma lag_after_start st k :
  reachable st -> active st k -> V st <= X st k + late k + (L - hd st k) * v - spent st k * (c k - v) + u.
Proof.
  intros Hr Hk. pose proof (theorem4_strong _ _ Hr Hk). pose proof (rf_late k (S st k) (hd st k)).
  unfold X, Rf in *. lia.
Qed.

(** B-WFI and T-WFI ([bounds::sched], [bounds::qfq]): DS- + DS+ + L_k (1/phi - 1) + L. *)
Theorem b_wfi_after_start k st0 st t tk :
  reachable st0 -> run k st0 st t tk ->
  t * v <= tk * c k + early k + late k + mx k * (c k - v) + L * v + u.
Proof.
  intros Hr H. destruct (run_adds _ _ _ _ _ Hr H) as [HV HX]. pose proof (ahead _ Hr k) as Ha.
  pose proof (run_active _ _ _ _ _ H) as Hk. pose proof (run_reachable _ _ _ _ _ Hr H) as Hr'.
  pose proof (lag_after_start _ _ Hr' Hk) as Hlag. pose proof (sound _ Hr') as Hs.
  pose proof (s_head _ Hs k (proj2 Hk)). pose proof (spent_most _ _ Hs (proj2 Hk)). pose proof (c_over_v k).
  assert (0 <= spent st k * (c k - v)) by (apply Z.mul_nonneg_nonneg; lia).
  assert (0 <= hd st k * v) by (apply Z.mul_nonneg_nonneg; lia). lia.
Qed.

Theorem t_wfi_after_start k st0 st st' t tk l :
  reachable st0 -> run k st0 st t tk -> step st st' k l ->
  (t + l) * v <= (tk + l) * c k + early k + late k + mx k * (c k - v) + (L - hd st k) * v + u - l * (c k - v).
Proof.
  intros Hr H _. destruct (run_adds _ _ _ _ _ Hr H) as [HV HX]. pose proof (ahead _ Hr k) as Ha.
  pose proof (run_active _ _ _ _ _ H) as Hk. pose proof (run_reachable _ _ _ _ _ Hr H) as Hr'.
  pose proof (lag_after_start _ _ Hr' Hk) as Hlag. pose proof (sound _ Hr') as Hs.
  pose proof (spent_most _ _ Hs (proj2 Hk)). pose proof (c_over_v k).
  assert (0 <= spent st k * (c k - v)) by (apply Z.mul_nonneg_nonneg; lia). lia.
Qed.
End AfterStart.

End Stamps.
