(** WF2Q+, GFQ, S-KPS and QFQ as instances of [Stamps]: the bounds of crates/core/src/bounds/timestamps.rs, with Q = 0.

    All are in virtual time: a byte of the link is [v], one of the flow is [c k] = v / phi. So [mx k * (c k - v)] is
    (1 / phi - 1) L_k, and [sigma k] is the slot. [u] is the unit of timestamps. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Import Sums Stamps.
Import ListNotations.
Open Scope Z_scope.

Section Timestamps.

Variable flows : list nat.
Hypothesis nodup : NoDup flows.
Variables c w mx : nat -> Z.
Variables v L u W K : Z.
Hypothesis v_pos : 0 < v.
Hypothesis u_pos : 0 < u.
Hypothesis W_pos : 0 < W.
Hypothesis c_over_v : forall k, v <= c k.
Hypothesis w_nonneg : forall k, 0 <= w k.
Hypothesis mx_pos : forall k, 0 < mx k <= L.
Hypothesis weights : sum w flows <= W.
Hypothesis cost_up : forall k, K <= w k * c k.
Hypothesis clock_down : W * v <= K.

(** * The starts that the algorithms choose are among those of [arrive] *)

Section Starts.
Variables (rs : nat -> Z -> Z) (rf : nat -> Z -> Z -> Z).
Notation low := (low flows u rs rf).
Notation elig := (elig flows rs).

(** max(F, V), V in units of timestamps: WF2Q+, GFQ, S-KPS. *)
Lemma plain_start st k :
  Z.max (S st k) (low st) <= Z.max (S st k) (fu u (V st)) <= Z.max (S st k) (V st).
Proof.
  pose proof (proj1 (low_spec flows u rs rf st)). pose proof (fu_le u u_pos (V st)). lia.
Qed.

(** Eq. 29: back to the finish of an eligible flow; QFQ takes that of a certain one. *)
Lemma shifted_start st k b :
  elig st b ->
  Z.max (S st k) (low st) <= Z.max (S st k) (Z.min (fu u (V st)) (Rf rf st b)) <= Z.max (S st k) (V st).
Proof.
  intros Hb. pose proof (low_spec flows u rs rf st) as (H1 & H2 & _). specialize (H2 b Hb).
  pose proof (fu_le u u_pos (V st)). lia.
Qed.
End Starts.

(** * WF2Q+: exact timestamps *)

Section Wf2qPlus.
Let rs (_ : nat) (s : Z) := s.
Let rf (k : nat) s h := s + h * c k.
Let zero (_ : nat) := 0.
Let exact_before k s : rs k s <= s. Proof. unfold rs. lia. Qed.
Let exact_early k s : s <= rs k s + zero k. Proof. unfold rs, zero. lia. Qed.
Let exact_covers k s h : 0 < h <= mx k -> s + h * c k <= rf k s h. Proof. unfold rf. lia. Qed.
Let exact_grows k s h s' h' : s <= s' -> s + h * c k <= s' + h' * c k -> rf k s h <= rf k s' h'. Proof. unfold rf. lia. Qed.
Let exact_late k s h : rf k s h <= s + h * c k + zero k. Proof. unfold rf, zero. lia. Qed.
Notation reachable := (reachable flows c mx v u rs rf).
Notation step := (step flows c mx v u rs rf).
Notation run := (run flows c mx v u rs rf).

(** 2 (1 / phi - 1) L_k + L. *)
Theorem wf2q_plus_b_wfi k st0 st t tk :
  reachable st0 -> run k st0 st t tk -> t * v <= tk * c k + 2 * mx k * (c k - v) + L * v + u.
Proof.
  intros Hr H. pose proof (b_wfi_after_finish flows nodup c w mx v L u W K v_pos u_pos W_pos c_over_v w_nonneg mx_pos weights
    cost_up clock_down rs rf zero exact_before exact_early exact_covers exact_grows zero exact_late k st0 st t tk Hr H). unfold zero in *. lia.
Qed.

(** (1 / phi - 1) L_k + L, and the excess of the announced length. *)
Theorem wf2q_plus_t_wfi k st0 st st' t tk l :
  reachable st0 -> run k st0 st t tk -> step st st' k l ->
  (t + l) * v <= (tk + l) * c k + mx k * (c k - v) + L * v + u + (hd st k - spent st k - l) * (c k - v).
Proof.
  intros Hr H Hs. pose proof (t_wfi_after_finish flows nodup c w mx v L u W K v_pos u_pos W_pos c_over_v w_nonneg mx_pos weights
    cost_up clock_down rs rf zero exact_before exact_early exact_covers exact_grows zero exact_late k st0 st st' t tk l Hr H Hs). unfold zero in *. lia.
Qed.
End Wf2qPlus.

(** * Slots *)

Variable sigma : nat -> Z.
Hypothesis sigma_pos : forall k, 0 < sigma k.

(** The slot of [s] of flow [k] begins there, where slots begin at multiples and [o]. *)
Definition slot (o : nat -> Z) k s := (s - o k) / sigma k * sigma k + o k.

Lemma slot_le o k s : slot o k s <= s.
Proof. unfold slot. pose proof (sigma_pos k). pose proof (Z.mul_div_le (s - o k) (sigma k)). lia. Qed.
Lemma slot_gt o k s : s < slot o k s + sigma k.
Proof. unfold slot. pose proof (sigma_pos k). pose proof (Z.mul_succ_div_gt (s - o k) (sigma k)). lia. Qed.
Lemma slot_grows o k s s' : s <= s' -> slot o k s <= slot o k s'.
Proof.
  intros H. unfold slot. pose proof (sigma_pos k). apply Z.add_le_mono_r, Z.mul_le_mono_nonneg_r; [lia |].
  apply Z.div_le_mono; lia.
Qed.
Lemma slot_next o k s d : 0 <= d <= sigma k -> slot o k (s + d) <= slot o k s + sigma k.
Proof.
  intros H. unfold slot. pose proof (sigma_pos k).
  assert ((s + d - o k) / sigma k <= (s - o k) / sigma k + 1); [| nia].
  rewrite <- Z.div_add by lia. apply Z.div_le_mono; lia.
Qed.

(** * GFQ: the start rounded down, the finish up *)

Section Gfq.
Let none (_ : nat) := 0.
Let rs k s := slot none k s.
Let rf k s h := slot none k (s + h * c k + sigma k - 1).
Notation reachable := (reachable flows c mx v u rs rf).
Notation step := (step flows c mx v u rs rf).
Notation run := (run flows c mx v u rs rf).

Lemma gfq_covers k s h : 0 < h <= mx k -> s + h * c k <= rf k s h.
Proof. intros _. unfold rf. pose proof (slot_gt none k (s + h * c k + sigma k - 1)). lia. Qed.
Lemma gfq_early k s : s <= rs k s + sigma k.
Proof. unfold rs. pose proof (slot_gt none k s). lia. Qed.
Lemma gfq_grows k s h s' h' : s <= s' -> s + h * c k <= s' + h' * c k -> rf k s h <= rf k s' h'.
Proof. intros _ H. apply slot_grows. lia. Qed.
Lemma gfq_late k s h : rf k s h <= s + h * c k + sigma k.
Proof. unfold rf. pose proof (slot_le none k (s + h * c k + sigma k - 1)). lia. Qed.

(** 2 sigma + 2 (1 / phi - 1) L_k + L. *)
Theorem gfq_b_wfi k st0 st t tk :
  reachable st0 -> run k st0 st t tk -> t * v <= tk * c k + 2 * sigma k + 2 * mx k * (c k - v) + L * v + u.
Proof.
  intros Hr H. pose proof (b_wfi_after_finish flows nodup c w mx v L u W K v_pos u_pos W_pos c_over_v w_nonneg mx_pos weights
    cost_up clock_down rs rf sigma (slot_le none) gfq_early gfq_covers gfq_grows sigma gfq_late k st0 st t tk Hr H). lia.
Qed.

(** 2 sigma + (1 / phi - 1) L_k + L. *)
Theorem gfq_t_wfi k st0 st st' t tk l :
  reachable st0 -> run k st0 st t tk -> step st st' k l ->
  (t + l) * v <= (tk + l) * c k + 2 * sigma k + mx k * (c k - v) + L * v + u + (hd st k - spent st k - l) * (c k - v).
Proof.
  intros Hr H Hs. pose proof (t_wfi_after_finish flows nodup c w mx v L u W K v_pos u_pos W_pos c_over_v w_nonneg mx_pos
    weights cost_up clock_down rs rf sigma (slot_le none) gfq_early gfq_covers gfq_grows sigma gfq_late k st0 st st' t tk l
    Hr H Hs). lia.
Qed.

(** The choice by groups: the first stack of a group's first bucket finishes no later than any other of the group
    ([Group::first_stack], [Gfq::choose_eligible]), as F^ is one slot after S^ or two. *)
Theorem gfq_first_stack a b s s' h h' :
  sigma a = sigma b -> 0 < h * c a <= sigma a -> 0 < h' * c b <= sigma b ->
  rs a s < rs b s' -> rf a s h <= rf b s' h'.
Proof.
  intros Hg Hh Hh' Hs. pose proof (sigma_pos a) as Ha. unfold rs, rf, slot, none in *. rewrite !Z.sub_0_r, !Z.add_0_r in *.
  rewrite <- Hg in *. set (g := sigma a) in *.
  assert (s / g < s' / g) by nia.
  assert ((s + h * c a + g - 1) / g <= s / g + 2).
  { rewrite <- Z.div_add by lia. apply Z.div_le_mono; lia. }
  assert (s' / g + 1 <= (s' + h' * c b + g - 1) / g).
  { rewrite <- Z.div_add by lia. apply Z.div_le_mono; lia. }
  nia.
Qed.
End Gfq.

(** * QFQ and S-KPS: the finish two slots after the rounded start *)

(** [o] is 0 for QFQ, half a slot for S-KPS ([slot_at] of s_kps.rs). Slots are released as they begin. *)
Section Qfq.
Variable o : nat -> Z.
Hypothesis mx_slot : forall k, mx k * c k <= sigma k.
Let rs k s := slot o k s.
Let rf k s (_ : Z) := slot o k s + 2 * sigma k.
Notation reachable := (reachable flows c mx v u rs rf).
Notation step := (step flows c mx v u rs rf).
Notation run := (run flows c mx v u rs rf).

Lemma qfq_covers k s h : 0 < h <= mx k -> s + h * c k <= rf k s h.
Proof.
  intros Hh. unfold rf. pose proof (slot_gt o k s). pose proof (mx_slot k). pose proof (c_over_v k).
  assert (h * c k <= mx k * c k) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
Qed.
Lemma qfq_early k s : s <= rs k s + sigma k.
Proof. unfold rs. pose proof (slot_gt o k s). lia. Qed.
Lemma qfq_grows k s h s' h' : s <= s' -> s + h * c k <= s' + h' * c k -> rf k s h <= rf k s' h'.
Proof. intros H _. unfold rf. pose proof (slot_grows o k s s' H). lia. Qed.
Lemma qfq_late k s h : rf k s h <= s + 2 * sigma k.
Proof. unfold rf. pose proof (slot_le o k s). lia. Qed.

(** 3 sigma + (1 / phi - 1) L_k + L. *)
Theorem qfq_b_wfi k st0 st t tk :
  reachable st0 -> run k st0 st t tk -> t * v <= tk * c k + 3 * sigma k + mx k * (c k - v) + L * v + u.
Proof.
  intros Hr H. pose proof (b_wfi_after_start flows nodup c w mx v L u W K v_pos u_pos W_pos c_over_v w_nonneg mx_pos weights
    cost_up clock_down rs rf sigma (slot_le o) qfq_early qfq_covers qfq_grows (fun k => 2 * sigma k) qfq_late
    k st0 st t tk Hr H). cbv beta in *. lia.
Qed.

Theorem qfq_t_wfi k st0 st st' t tk l :
  reachable st0 -> run k st0 st t tk -> step st st' k l ->
  (t + l) * v <= (tk + l) * c k + 3 * sigma k + mx k * (c k - v) + (L - hd st k) * v + u - l * (c k - v).
Proof.
  intros Hr H Hs. pose proof (t_wfi_after_start flows nodup c w mx v L u W K v_pos u_pos W_pos c_over_v w_nonneg mx_pos
    weights cost_up clock_down rs rf sigma (slot_le o) qfq_early qfq_covers qfq_grows (fun k => 2 * sigma k) qfq_late
    k st0 st st' t tk l Hr H Hs). cbv beta in *. lia.
Qed.

(** [bounds::qfq_equal_packets]: where all of the flow's packets have length [mx k], (1 / phi - 1) L_k less. *)
Theorem qfq_equal_packets k st0 st st' t tk :
  reachable st0 -> run k st0 st t tk -> step st st' k (mx k) ->
  (t + mx k) * v <= (tk + mx k) * c k + 3 * sigma k + (L - hd st k) * v + u.
Proof. intros Hr H Hs. pose proof (qfq_t_wfi _ _ _ _ _ _ _ Hr H Hs). lia. Qed.
End Qfq.

(** * Theorem 3: a rounded start lies at most at V rounded up *)

Section Theorem3.
Variable o : nat -> Z.
Hypothesis mx_slot : forall k, mx k * c k <= sigma k.
Variable rf : nat -> Z -> Z -> Z.
Hypothesis rf_covers : forall k s h, 0 < h <= mx k -> s + h * c k <= rf k s h.
Let rs k s := slot o k s.
Notation reachable := (reachable flows c mx v u rs rf).

Theorem theorem3 st : reachable st -> forall k, Rs rs st k < V st + sigma k.
Proof.
  induction 1 as [| st st' i l Hr IH H]; intros k; pose proof (sigma_pos k) as Hk.
  - unfold Rs, init. simpl. unfold rs. pose proof (slot_le o k 0). lia.
  - specialize (IH k). unfold Rs in *.
    pose proof (sound flows c mx v u v_pos u_pos c_over_v rs rf (slot_le o) rf_covers st Hr) as Hs.
    inversion H as [s0 k0 s h Hf Ha Hst Hh | s0 k0 Hc He Hm | s0 k0 x b l0 Hc Hl Hx | s0 k0 x b more h Hc Hh Hn
      | s0 k0 to Hc Ha Hm Hv Hto | s0 to k0 Hc Hno Hto]; subst; simpl; try assumption.
    + destruct (Nat.eq_dec k i) as [-> | Hki]; [rewrite upd_same | rewrite upd_other by assumption; assumption].
      destruct (Z_le_gt_dec s (S st i)) as [Hle | Hgt]; [pose proof (slot_grows o i _ _ Hle); unfold rs in *; lia |].
      pose proof (slot_le o i s). unfold rs. lia.
    + nia.
    + destruct (Nat.eq_dec k i) as [-> | Hki]; [rewrite upd_same | rewrite upd_other by assumption; assumption].
      destruct (s_cur _ _ _ _ _ _ _ Hs i x b Hc) as (Hi & Hx & HV & HR & _).
      pose proof (s_head _ _ _ _ _ _ _ Hs i (proj2 Hi)). pose proof (mx_slot i). pose proof (c_over_v i).
      destruct (Z.eq_dec x 0) as [-> | Hx0]; [replace (S st i + 0 * c i) with (S st i) by lia; assumption |].
      assert (0 <= x * c i <= sigma i).
      { split; [apply Z.mul_nonneg_nonneg; lia |]. assert (x * c i <= mx i * c i) by (apply Z.mul_le_mono_nonneg_r; lia). lia. }
      pose proof (slot_next o i (S st i) (x * c i) H3). unfold Rs, rs in *. nia.
    + pose proof (fu_le u u_pos to). unfold Rs in *. lia.
    + lia.
Qed.

(** An idle flow's last finish lies in the slot that follows V's, or before: to hold it back to the end of that slot
    ([Gfq::latest_start], [Qfq::latest_start]) changes nothing. *)
Theorem cap_never_binds st k : reachable st -> S st k < slot o k (V st) + 2 * sigma k.
Proof.
  intros Hr. pose proof (theorem3 st Hr k) as H3. unfold Rs, rs in H3. pose proof (slot_gt o k (S st k)).
  pose proof (slot_gt o k (V st)). pose proof (sigma_pos k). unfold slot in *.
  assert ((S st k - o k) / sigma k < (V st - o k) / sigma k + 2) by nia. nia.
Qed.
End Theorem3.

End Timestamps.
