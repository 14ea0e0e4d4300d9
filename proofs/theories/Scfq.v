(** Self-clocked fair queueing, and its bounds (Golestani's delay bound).

    The model follows crates/core/src/sched/scfq.rs: [arrive] is [backlogged], [serve] is [reschedule] of the selected
    entity: of all the smallest tag, [S + hd * c], ties in any order. [hd] is the head's length ([Head::Known]) or the
    longest packet ([Head::Longest]). No weight changes, and tags do not wrap. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Import Sums.
Import ListNotations.
Open Scope Z_scope.

Section Scfq.

Variable flows : list nat.
Hypothesis nodup : NoDup flows.
(** Virtual time of a byte, weight, longest packet; c at weight 1, and by how much a cost is rounded up. *)
Variables c p mx r : nat -> Z.
Variable K : Z.
Hypothesis K_pos : 0 < K.
Hypothesis c_pos : forall k, 0 < c k.
Hypothesis p_nonneg : forall k, 0 <= p k.
Hypothesis mx_pos : forall k, 0 < mx k.
Hypothesis cost : forall k, K <= p k * c k <= K + r k.

Record state := mk { v : Z; S : nat -> Z; act : nat -> bool; hd : nat -> Z }.

Definition F st k := S st k + hd st k * c k.
Definition active st k := In k flows /\ act st k = true.

Inductive step : state -> state -> nat -> Z -> Prop :=
| arrive st k h :
    In k flows -> act st k = false -> 0 < h <= mx k ->
    step st (mk (v st) (upd (S st) k (v st)) (upd (act st) k true) (upd (hd st) k h)) k 0
| serve st k l more h :
    active st k -> (forall x, active st x -> F st k <= F st x) -> 0 < l <= hd st k ->
    0 < h <= mx k -> hd st k <= l + h ->
    step st (mk (Z.max (v st) (S st k + l * c k)) (upd (S st) k (S st k + l * c k)) (upd (act st) k more)
      (upd (hd st) k h)) k l.

Definition init := mk 0 (fun _ => 0) (fun _ => false) (fun _ => 0).

Inductive reachable : state -> Prop :=
| r_init : reachable init
| r_step st st' k l : reachable st -> step st st' k l -> reachable st'.

(** A tag is never before v, and never counts from a point after v. *)
Definition Sound st := forall k, act st k = true -> In k flows /\ 0 < hd st k <= mx k /\ S st k <= v st <= F st k.

Ltac at_flow x k := destruct (Nat.eq_dec x k) as [-> | ?]; [rewrite ?upd_same in * | rewrite ?upd_other in * by assumption].

Lemma sound_step st st' i l : Sound st -> step st st' i l -> Sound st'.
Proof.
  intros Hs H k. pose proof (c_pos i) as Hci.
  inversion H as [s0 k0 h Hf Ha Hh | s0 k0 l0 more h Ha Hm Hl Hh Hn]; subst; unfold F; simpl; intros Hk.
  - at_flow k i; [| apply (Hs k Hk)]. assert (0 < h * c i) by nia. repeat split; try assumption; lia.
  - destruct (Hs i (proj2 Ha)) as (Hi & Hhi & HSi). unfold F in *.
    assert (0 < l * c i) by nia. assert (l * c i <= hd st i * c i) by (apply Z.mul_le_mono_nonneg_r; lia).
    at_flow k i.
    + assert (hd st i * c i <= (l + h) * c i) by (apply Z.mul_le_mono_nonneg_r; lia).
      assert (0 < h * c i) by nia. repeat split; try assumption; lia.
    + destruct (Hs k Hk) as (Hkf & Hhk & HSk). specialize (Hm k (conj Hkf Hk)). unfold F in *.
      repeat split; try assumption; lia.
Qed.

Theorem sound st : reachable st -> Sound st.
Proof. induction 1 as [| st st' k l _ IH H]; [intros k [=] | eapply sound_step; eassumption]. Qed.

(** A run in which [k] always has something to send, and the work of each flow. *)
Inductive run k : state -> state -> (nat -> Z) -> Prop :=
| run_refl st : active st k -> run k st st (fun _ => 0)
| run_step st0 st st' w i l : run k st0 st w -> step st st' i l -> active st' k -> run k st0 st' (upd w i (w i + l)).

Lemma run_reachable k st0 st w : reachable st0 -> run k st0 st w -> reachable st.
Proof.
  intros Hr H. induction H as [| st0 st st' w i l H IH Hs Hk]; [assumption |].
  eapply r_step; [apply IH; assumption | eassumption].
Qed.

Lemma run_active k st0 st w : run k st0 st w -> active st k.
Proof. destruct 1; assumption. Qed.

Lemma run_own k st0 st w : run k st0 st w -> S st k = S st0 k + w k * c k.
Proof.
  induction 1 as [| st0 st st' w i l H IH Hs Hk]; [lia |]. pose proof (run_active _ _ _ _ H) as [_ Hka].
  inversion Hs as [s0 k0 h Hf Ha Hh | s0 k0 l0 more h Ha Hm Hl Hh Hn]; subst; simpl.
  - assert (k <> i) by (intros ->; congruence). rewrite !upd_other by assumption. assumption.
  - at_flow k i; lia.
Qed.

(** Of another flow: no tag is passed over, and none beyond that of [k] is served. *)
Lemma run_other k j st0 st w :
  reachable st0 -> j <> k -> run k st0 st w ->
  w j * c j <= (if act st j then S st j else v st) - v st0 + mx j * c j /\
  (w j = 0 \/ w j * c j <= F st k - v st0 + mx j * c j).
Proof.
  intros Hr Hjk H. pose proof (c_pos j) as Hcj. pose proof (mx_pos j) as Hmj.
  induction H as [st Hk | st0 st st' w i l H IH Hs Hk].
  - split; [| now left]. pose proof (sound _ Hr j) as Hs. unfold F in Hs. destruct (act st j); [| nia].
    destruct (Hs eq_refl) as (_ & Hh & HS). nia.
  - specialize (IH Hr). destruct IH as [IH1 IH2]. pose proof (run_active _ _ _ _ H) as Hka.
    pose proof (sound _ (run_reachable _ _ _ _ Hr H)) as Hsound. pose proof (c_pos i) as Hci.
    inversion Hs as [s0 k0 h Hf Ha Hh | s0 k0 l0 more h Ha Hm Hl Hh Hn]; subst; unfold F in *; simpl.
    + assert (Hki : k <> i) by (intros ->; destruct Hka; congruence). rewrite !(upd_other _ i) with (j := k) by assumption.
      at_flow j i; [| split; assumption]. rewrite Ha in IH1. rewrite !Z.add_0_r. split; assumption.
    + pose proof (Hm k Hka) as Hik. destruct (Nat.eq_dec j i) as [-> | Hji].
      * rewrite !upd_same. rewrite !(upd_other _ i) with (j := k) by congruence. destruct Ha as [_ Ha].
        rewrite Ha in IH1. assert (l * c i <= hd st i * c i) by (apply Z.mul_le_mono_nonneg_r; lia).
        split; [destruct more; lia |]. right. lia.
      * rewrite !(upd_other _ i) with (j := j) by assumption.
        split; [destruct (act st j); lia |]. destruct IH2 as [IH2 | IH2]; [now left | right].
        at_flow k i; [| assumption].
        assert (hd st i * c i <= (l + h) * c i) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
Qed.

Lemma other_work k j st0 st w :
  reachable st0 -> j <> k -> run k st0 st w -> 0 <= w k -> w j * c j <= (w k + hd st k) * c k + mx j * c j.
Proof.
  intros Hr Hjk H Hw. destruct (run_other k j st0 st w Hr Hjk H) as [_ Ho].
  pose proof (run_own _ _ _ _ H) as HS. pose proof (c_pos j). pose proof (c_pos k). pose proof (mx_pos j).
  pose proof (sound _ (run_reachable _ _ _ _ Hr H) k (proj2 (run_active _ _ _ _ H))) as (_ & Hh & _).
  assert (S st0 k <= v st0).
  { apply (sound _ Hr k). clear - H. induction H as [st0 H | st0 st st' w i l H IH]; [apply H | exact IH]. }
  destruct Ho as [-> | Ho]; [nia |]. unfold F in Ho. lia.
Qed.

Lemma run_nonneg k st0 st w j : run k st0 st w -> 0 <= w j.
Proof.
  induction 1 as [| st0 st st' w i l H IH Hs Hk]; [lia |].
  at_flow j i; [| assumption]. inversion Hs; subst; lia.
Qed.

Definition P := sum p flows.
Definition others (f : nat -> Z) k := sum f flows - f k.

Lemma P_covers k : In k flows -> p k <= P.
Proof. intros H. apply sum_ge_term; [assumption | intros; apply p_nonneg]. Qed.

Lemma all_work k st0 st w :
  reachable st0 -> In k flows -> run k st0 st w ->
  K * (p k * (sum w flows - w k)) <=
    (P - p k) * (w k + hd st k) * (K + r k) + K * (p k * others mx k) + p k * others (fun j => mx j * r j) k.
Proof.
  intros Hr Hk H. pose proof (run_nonneg _ _ _ _ k H) as Hw. pose proof (c_pos k). pose proof (p_nonneg k).
  pose proof (sound _ (run_reachable _ _ _ _ Hr H) k (proj2 (run_active _ _ _ _ H))) as (_ & Hh & _).
  set (y := (w k + hd st k) * c k).
  assert (Hj : forall j, In j flows -> j <> k -> K * w j <= p j * y + (K * mx j + mx j * r j)).
  { intros j Hj Hjk. pose proof (other_work k j st0 st w Hr Hjk H Hw) as Ho. fold y in Ho. pose proof (cost j).
    pose proof (run_nonneg _ _ _ _ j H). pose proof (p_nonneg j). pose proof (mx_pos j).
    assert (p j * (w j * c j) <= p j * (y + mx j * c j)) by (apply Z.mul_le_mono_nonneg_l; assumption).
    assert (K * w j <= p j * c j * w j) by (apply Z.mul_le_mono_nonneg_r; lia).
    assert (mx j * (p j * c j) <= mx j * (K + r j)) by (apply Z.mul_le_mono_nonneg_l; lia). lia. }
  pose proof (sum_others (fun j => w j * K) (fun j => p j * y + (mx j * K + mx j * r j)) k flows nodup Hk
    ltac:(intros j Hj1 Hj2; specialize (Hj j Hj1 Hj2); cbv beta; lia)) as Hs.
  cbv beta in Hs. rewrite (sum_add (fun j => p j * y)), (sum_add (fun j => mx j * K)), !sum_scale in Hs.
  fold P in Hs. unfold others. pose proof (P_covers k Hk). pose proof (cost k).
  assert (Hy : p k * y <= (w k + hd st k) * (K + r k)).
  { unfold y. assert ((w k + hd st k) * (p k * c k) <= (w k + hd st k) * (K + r k)) by (apply Z.mul_le_mono_nonneg_l; lia). lia. }
  assert ((P - p k) * (p k * y) <= (P - p k) * ((w k + hd st k) * (K + r k))) by (apply Z.mul_le_mono_nonneg_l; lia).
  assert (p k * (sum w flows * K - w k * K) <= p k * (P * y + (sum mx flows * K + sum (fun j => mx j * r j) flows)
    - (p k * y + (mx k * K + mx k * r k)))) by (apply Z.mul_le_mono_nonneg_l; lia).
  lia.
Qed.

(** The part of rounding: a cost is up to [r] beyond K, and [r k] / K is below 10^-6. *)
Definition rounding k work := (P - p k) * work * r k + p k * others (fun j => mx j * r j) k.

(** B-WFI ([bounds::scfq], with Q = 0): phi W - W_k <= phi (other flows' longest packets) + (1 - phi) L_k. *)
Theorem b_wfi k st0 st w :
  reachable st0 -> In k flows -> run k st0 st w ->
  K * (p k * sum w flows) <= K * (P * w k + p k * others mx k + (P - p k) * mx k) + rounding k (w k + mx k).
Proof.
  intros Hr Hk H. pose proof (all_work k st0 st w Hr Hk H) as Ha. pose proof (P_covers k Hk). pose proof (cost k).
  pose proof (sound _ (run_reachable _ _ _ _ Hr H) k (proj2 (run_active _ _ _ _ H))) as (_ & Hh & _).
  assert ((P - p k) * (K + r k) * (w k + hd st k) <= (P - p k) * (K + r k) * (w k + mx k)).
  { apply Z.mul_le_mono_nonneg_l; [apply Z.mul_nonneg_nonneg |]; lia. }
  unfold rounding. lia.
Qed.

(** T-WFI: B / phi and the other flows' longest packets, and (1 / phi - 1) times the excess of the announced length. *)
Theorem t_wfi k st0 st w l :
  reachable st0 -> In k flows -> run k st0 st w -> 0 < l <= hd st k ->
  let B := w k + l in
  K * (p k * (sum w flows + l)) <=
    K * (P * B + p k * others mx k + (P - p k) * (hd st k - l)) + rounding k (w k + hd st k).
Proof.
  intros Hr Hk H Hl B. pose proof (all_work k st0 st w Hr Hk H) as Ha. unfold rounding, B. lia.
Qed.

End Scfq.
