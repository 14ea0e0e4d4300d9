(** The sets of groups of QFQ: the rules by which the code moves groups among ER, IR, EB and IB. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Export Qfq.
Import ListNotations.
Open Scope Z_scope.

Section QfqSets.
Context {C : config} {ok : well_formed C}.
(* For lia. *)
Let v0 : 0 < v := v_pos.
Let u0 : 0 < u := u_pos.

(** Fig. 7: the highest bit that changed in V tells which groups V has passed a slot's beginning of. *)
Lemma changed_bit i a b : 0 <= i -> 0 <= a <= b ->
  (a / 2 ^ i < b / 2 ^ i <-> a <> b /\ i <= Z.log2 (Z.lxor a b)).
Proof.
  intros Hi Hab.
  assert (Hx : 0 <= Z.lxor a b) by (apply Z.lxor_nonneg; lia).
  assert (Hle : a / 2 ^ i <= b / 2 ^ i) by (apply Z.div_le_mono; [apply Z.pow_pos_nonneg |]; lia).
  assert (Heq : a / 2 ^ i = b / 2 ^ i <-> Z.shiftr (Z.lxor a b) i = 0).
  { rewrite Z.shiftr_lxor, !Z.shiftr_div_pow2 by assumption. split; [intros ->; apply Z.lxor_nilpotent | apply Z.lxor_eq]. }
  rewrite Z.shiftr_div_pow2 in Heq by assumption.
  assert (Hz : Z.lxor a b / 2 ^ i = 0 <-> Z.lxor a b < 2 ^ i).
  { split; intros H; [| now apply Z.div_small].
    apply Z.div_small_iff in H; [lia |]. pose proof (Z.pow_pos_nonneg 2 i). lia. }
  assert (Hne : a <> b <-> 0 < Z.lxor a b).
  { split; intros H; [| intros ->; rewrite Z.lxor_nilpotent in H; lia].
    destruct (Z.eq_dec (Z.lxor a b) 0) as [E |]; [apply Z.lxor_eq in E; contradiction | lia]. }
  split.
  - intros H. assert (Hge : 2 ^ i <= Z.lxor a b) by (apply Z.nlt_ge; intros Hlt; apply Hz, Heq in Hlt; lia).
    assert (0 < 2 ^ i) by (apply Z.pow_pos_nonneg; lia). split; [apply Hne; lia | apply Z.log2_le_pow2; lia].
  - intros [Hab' Hlog]. apply Hne in Hab'. apply Z.log2_le_pow2 in Hlog; [| assumption].
    assert (a / 2 ^ i <> b / 2 ^ i) by (intros E; apply Heq, Hz in E; lia). lia.
Qed.

(** [make_eligible]: the ineligible groups up to that bit, and no others, become eligible as V grows. *)
Theorem make_eligible_is_exact st b to :
  reachable st -> V st < Rs st b -> 0 <= V st <= to ->
  (Rs st b <= to <-> V st <> to /\ g b <= Z.log2 (Z.lxor (V st) to)).
Proof.
  intros Hr Hv Ht. destruct (invariant _ Hr) as [H3 _]. specialize (H3 b).
  pose proof (g_nonneg b) as Hg. rewrite <- (changed_bit (g b) (V st) to Hg Ht). fold (sigma b).
  assert (HR : Rs st b = fl b (V st) + sigma b).
  { assert (Rs st b <= fl b (V st) + sigma b).
    { apply gap_le with (sigma b); [apply sigma_pos | apply Rs_divides | |].
      - apply Z.divide_add_r; [apply fl_divides | apply Z.divide_refl].
      - pose proof (fl_gt b (V st)). lia. }
    assert (fl b (V st) + sigma b <= Rs st b).
    { apply gap; [apply sigma_pos | apply fl_divides | apply Rs_divides | pose proof (fl_le b (V st)); lia]. }
    lia. }
  pose proof (sigma_pos b) as Hs. unfold fl in HR. split; intros H.
  - apply Z.div_le_mono with (c := sigma b) in H; [| lia]. rewrite HR in H.
    replace (V st / sigma b * sigma b + sigma b) with ((V st / sigma b + 1) * sigma b) in H by lia.
    rewrite Z.div_mul in H; lia.
  - pose proof (Z.mul_div_le to (sigma b) Hs). nia.
Qed.

(** They block no group: IR goes to ER, IB to EB. *)
Theorem newly_eligible_blocks_none st h b :
  reachable st -> V st < Rs st b -> g h < g b -> Rf st h <= Rf st b.
Proof. intros Hr Hv Hg. now apply ineligible_is_sorted. Qed.

(** [sets_with]: the lowest group of ER above a group decides whether it is blocked. *)
Theorem lowest_above_tells st k x :
  elig st x -> ready st x -> g k < g x ->
  (forall y, elig st y -> ready st y -> g k < g y -> g x <= g y) ->
  (forall y, elig st y -> g y = g x -> Rf st x <= Rf st y) ->
  (blocked st k <-> Rf st x < Rf st k).
Proof.
  intros Hx Hr Hg Hlow Hhead. split; [| intros H; exists x; auto].
  intros (b & Hb & Hgb & Hf).
  (* the least finish above, of the highest group that has it, is ready *)
  destruct (least (fun y => elig st y /\ g k < g y) (Rf st) flows) as [(m & Hm & (Hme & Hmg) & Hmin) | Hno].
  { intros y. destruct (elig_dec st y); [| right; tauto]. destruct (Z_lt_dec (g k) (g y)); [left; tauto | right; tauto]. }
  2: { exfalso. eapply Hno; [apply Hb | tauto]. }
  destruct (least (fun y => elig st y /\ Rf st y = Rf st m) (fun y => - g y) flows) as [(z & Hz & (Hze & Hzf) & Hzmax) | Hno].
  { intros y. destruct (elig_dec st y); [| right; tauto]. destruct (Z.eq_dec (Rf st y) (Rf st m)); [left; tauto | right; tauto]. }
  2: { exfalso. eapply Hno; [apply Hm | tauto]. }
  assert (Hzg : g k < g z) by (specialize (Hzmax m Hm ltac:(tauto)); simpl in Hzmax; lia).
  assert (Hzr : ready st z).
  { intros y Hy Hgy. destruct (Z.eq_dec (Rf st y) (Rf st m)) as [He | Hne].
    - specialize (Hzmax y ltac:(apply Hy) ltac:(tauto)). simpl in Hzmax. lia.
    - specialize (Hmin y ltac:(apply Hy) ltac:(split; [assumption | lia])). lia. }
  specialize (Hlow z Hze Hzr Hzg). specialize (Hmin b ltac:(apply Hb) ltac:(tauto)).
  assert (Rf st x <= Rf st z).
  { destruct (Z.eq_dec (g z) (g x)); [apply Hhead; assumption | apply Hr; [assumption | lia]]. }
  lia.
Qed.

(** [unblock], where no eligible group above the served one finishes when it did: all below become ready. [k] is served,
    the least of all that is eligible, ready; [f] is its finish before. After it, every eligible flow at or above its
    group finishes after [f]. *)
Theorem unblock_all st st' k h :
  reachable st -> elig st k -> (forall x, elig st x -> Rf st k <= Rf st x) -> ready st k ->
  (forall x, elig st x -> ready st x -> g k <= g x) ->
  step st st' -> V st <= V st' ->
  (forall x, g x <> g k -> S st' x = S st x /\ act st' x = act st x) ->
  (forall x, elig st' x -> g k <= g x -> Rf st k < Rf st' x) ->
  g h < g k -> ~ blocked st' h.
Proof.
  intros Hr Hk Hmin Hready Hlow Hs HV Hsame Habove Hg (j & Hj & Hgj & Hf).
  assert (Hh : Rf st' h = Rf st h) by (unfold Rf, Rs; destruct (Hsame h ltac:(lia)) as [-> _]; reflexivity).
  rewrite Hh in Hf.
  destruct (Z_lt_dec (g j) (g k)) as [Hjk | Hjk].
  - (* below the served one *)
    destruct (Hsame j ltac:(lia)) as [HS HA].
    assert (Hjf : Rf st' j = Rf st j) by (unfold Rf, Rs; now rewrite HS). rewrite Hjf in Hf.
    destruct Hj as [[Hin Hact] HjV]. rewrite HA in Hact.
    destruct (Z_le_gt_dec (Rs st j) (V st)) as [Hle | Hgt].
    + assert (Hje : elig st j) by (split; [split |]; assumption).
      destruct (least (fun b => elig st b /\ g j < g b) (Rf st) flows) as [(m & Hm & (Hme & Hmg) & Hmm) | Hno].
      { intros y. destruct (elig_dec st y); [| right; tauto]. destruct (Z_lt_dec (g j) (g y)); [left; tauto | right; tauto]. }
      * destruct (Z_lt_dec (Rf st m) (Rf st j)) as [Hb | Hb].
        -- pose proof (blocked_is_sorted st h j Hr (ex_intro _ m (conj Hme (conj Hmg Hb))) Hgj). lia.
        -- assert (ready st j).
           { intros b Hbe Hbg. specialize (Hmm b ltac:(apply Hbe) ltac:(tauto)). lia. }
           specialize (Hlow j Hje H). lia.
      * exfalso. eapply Hno; [apply Hk | split; [assumption | lia]].
    + pose proof (newly_eligible_blocks_none st h j Hr ltac:(lia) Hgj). lia.
  - (* at or above it *)
    specialize (Habove j Hj ltac:(lia)). destruct (invariant _ Hr) as [_ HL].
    assert (H1 : Rs st h <= Rf st k) by (apply HL; assumption).
    assert (H2 : Rf st k + sigma k <= Rf st' j).
    { apply gap; [apply sigma_pos | apply Rf_divides | | assumption].
      eapply Z.divide_trans; [apply sigma_divides | apply Rf_divides]. lia. }
    pose proof (sigma_double h k Hg). unfold Rf in Hf, H2 |- *. unfold Rf in *. lia.
Qed.

(** If such a group finishes at [f] or earlier, blocked groups stay blocked: it blocks all that the served one blocked. *)
Theorem unblock_none st st' k h x :
  blocked st h -> (forall b, elig st b -> Rf st k <= Rf st b) -> g h < g k ->
  elig st' x -> g k < g x -> Rf st' x <= Rf st k -> Rf st' h = Rf st h -> blocked st' h.
Proof.
  intros (b & Hb & Hgb & Hf) Hmin Hg Hx Hgx Hfx Hh. exists x. repeat split; try apply Hx; [lia |].
  specialize (Hmin b Hb). lia.
Qed.

End QfqSets.
