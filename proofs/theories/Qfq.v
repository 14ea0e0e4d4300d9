(** QFQ as a transition system over integers, and the order of its groups.

    Numbers of theorems and equations are those of Checconi, Valente, Rizzo, "QFQ: Efficient Packet Scheduling with
    Tight Bandwidth Distribution Guarantees", 2010. As in crates/core/src/sched/qfq.rs, a flow keeps only S: the last F
    of an idle flow is its S, every newly backlogged flow starts by Eq. 29, and ties may break in any order. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Export Basics.
Import ListNotations.
Open Scope Z_scope.

(** The link and its flows. *)
Class config := {
  flows : list nat;
  (** Per flow: virtual time of a byte, index of its group, longest packet, weight. *)
  c : nat -> Z; g : nat -> Z; mx : nat -> Z; w : nat -> Z;
  (** Progress of V per byte of work; longest packet of all flows; unit of timestamps, in which V is read. *)
  v : Z; L : Z; u : Z;
  (** The sum of weights, and the virtual time of a byte at weight 1. *)
  W : Z; K : Z
}.

(** Enough for the order of groups. *)
Class well_formed (C : config) : Prop := {
  g_nonneg : forall k, 0 <= g k;
  c_pos : forall k, 0 < c k;
  v_pos : 0 < v;
  mx_L : forall k, mx k <= L;
  (** A slot covers the longest packet (Eq. 4). *)
  mx_slot : forall k, mx k * c k <= 2 ^ g k;
  u_pos : 0 < u;
  u_slot : forall k, (u | 2 ^ g k)
}.

(** What service guarantees need besides: a cost is rounded up, the progress of V down. *)
Class fair (C : config) : Prop := {
  w_nonneg : forall k, 0 <= w k;
  W_pos : 0 < W;
  cost_up : forall k, K <= w k * c k;
  clock_down : W * v <= K;
  c_over_v : forall k, v <= c k;
  mx_nonneg : forall k, 0 <= mx k;
  L_nonneg : 0 <= L;
  nodup : NoDup flows;
  weights : sum w flows <= W
}.

Section Qfq.
Context {C : config} {ok : well_formed C}.
(* For lia. *)
Let v0 : 0 < v := v_pos.
Let u0 : 0 < u := u_pos.

(** V in whole units. *)
Definition fu x := x / u * u.

Lemma fu_le x : fu x <= x.
Proof. unfold fu. pose proof (Z.mul_div_le x u). lia. Qed.

Lemma fu_gt x : x < fu x + u.
Proof. unfold fu. pose proof (Z.mul_succ_div_gt x u). lia. Qed.

Lemma fu_divides x : (u | fu x).
Proof. exists (x / u). reflexivity. Qed.

Lemma fu_exact x : (u | x) -> fu x = x.
Proof. intros [z ->]. unfold fu. rewrite Z.div_mul; lia. Qed.

Definition sigma k := 2 ^ g k.

Lemma sigma_pos k : 0 < sigma k.
Proof. apply Z.pow_pos_nonneg; [lia | apply g_nonneg]. Qed.

Lemma sigma_divides a b : g a <= g b -> (sigma a | sigma b).
Proof.
  intros H. exists (2 ^ (g b - g a)). unfold sigma. rewrite <- Z.pow_add_r; pose proof (g_nonneg a); try lia.
  f_equal. lia.
Qed.

Lemma sigma_double a b : g a < g b -> 2 * sigma a <= sigma b.
Proof.
  intros H. unfold sigma. rewrite <- Z.pow_succ_r by apply g_nonneg. apply Z.pow_le_mono_r; lia.
Qed.

Definition fl k x := x / sigma k * sigma k.

Lemma fl_le k x : fl k x <= x.
Proof. unfold fl. pose proof (sigma_pos k). pose proof (Z.mul_div_le x (sigma k)). lia. Qed.

Lemma fl_gt k x : x < fl k x + sigma k.
Proof. unfold fl. pose proof (sigma_pos k). pose proof (Z.mul_succ_div_gt x (sigma k)). lia. Qed.

Lemma fl_mono k x y : x <= y -> fl k x <= fl k y.
Proof.
  intros H. unfold fl. pose proof (sigma_pos k). apply Z.mul_le_mono_nonneg_r; [lia | apply Z.div_le_mono; lia].
Qed.

Lemma fl_divides k x : (sigma k | fl k x).
Proof. exists (x / sigma k). reflexivity. Qed.

Lemma fl_exact k x : (sigma k | x) -> fl k x = x.
Proof. intros [z ->]. unfold fl. pose proof (sigma_pos k). rewrite Z.div_mul; lia. Qed.
Record state := mk { V : Z; S : nat -> Z; act : nat -> bool }.

(** Rounded start and finish (Eq. 5). *)
Definition Rs st k := fl k (S st k).
Definition Rf st k := Rs st k + 2 * sigma k.

Definition active st k := In k flows /\ act st k = true.
Definition elig st k := active st k /\ Rs st k <= V st.

(** Eq. 29, for every newly backlogged flow. F_b is the least rounded finish of the eligible flows above. *)
Definition start st k s :=
  (exists b, elig st b /\ g k < g b /\ (forall x, elig st x -> g k < g x -> Rf st b <= Rf st x)
     /\ s = Z.max (S st k) (Z.min (fu (V st)) (Rf st b)))
  \/ ((forall x, elig st x -> g x <= g k) /\ s = Z.max (S st k) (fu (V st))).

Inductive step : state -> state -> Prop :=
| arrive st k s :
    In k flows -> act st k = false -> start st k s ->
    step st (mk (V st) (upd (S st) k s) (upd (act st) k true))
| serve st k l more :
    elig st k -> (forall x, elig st x -> Rf st k <= Rf st x) ->
    0 < l -> l <= mx k ->
    step st (mk (V st + l * v) (upd (S st) k (S st k + l * c k)) (upd (act st) k more))
(** To the first start, or by less than a unit further, as V keeps its fraction. *)
| jump st a to :
    active st a -> (forall x, active st x -> Rs st a <= Rs st x) -> V st < Rs st a -> Rs st a <= to < Rs st a + u ->
    step st (mk to (S st) (act st))
(** V may advance at will while the link idles, as to the last finish of all flows. *)
| restart st to :
    (forall x, ~ active st x) -> V st <= to -> step st (mk to (S st) (act st)).

Definition init := mk 0 (fun _ => 0) (fun _ => false).

Inductive reachable : state -> Prop :=
| r_init : reachable init
| r_step st st' : reachable st -> step st st' -> reachable st'.

(** * Theorem 3, of idle flows too: the rounded start is at most V rounded up. *)
Definition T3 st := forall k, Rs st k < V st + sigma k.

(** * Lemma 4, for any flow below an eligible one: blocked or not, active or not. *)
Definition Low st := forall a b, elig st b -> g a < g b -> Rs st a <= Rf st b.

Lemma len_slot l k : l <= mx k -> l * c k <= sigma k.
Proof. intros H. pose proof (mx_slot k). pose proof (c_pos k). unfold sigma. nia. Qed.

Lemma Rs_divides st k : (sigma k | Rs st k).
Proof. apply fl_divides. Qed.

Lemma Rf_divides st k : (sigma k | Rf st k).
Proof. apply Z.divide_add_r; [apply Rs_divides | exists 2; reflexivity]. Qed.

Lemma T3_init : T3 init.
Proof. intros k. unfold Rs, init; simpl. unfold fl. rewrite Z.div_0_l by (pose proof (sigma_pos k); lia).
  pose proof (sigma_pos k). lia. Qed.

Lemma start_bounds st k s : start st k s -> S st k <= s /\ (s <= S st k \/ s <= V st).
Proof. pose proof (fu_le (V st)). intros [(b & _ & _ & _ & ->) | [_ ->]]; lia. Qed.

Lemma T3_step st st' : T3 st -> step st st' -> T3 st'.
Proof.
  intros H Hs. inversion Hs as [s0 k s Hk Ha Hst | s0 k l more He Hmin Hl Hx0 | s0 a to Ha Hm Hv Hto | s0 to Hno Hto]; subst; intros x;
    unfold Rs; simpl.
  - specialize (H x). destruct (Nat.eq_dec x k) as [-> | Hx].
    + rewrite upd_same. destruct (start_bounds _ _ _ Hst) as [_ [Hb | Hb]].
      * pose proof (fl_mono k _ _ Hb). unfold Rs in H. lia.
      * pose proof (fl_le k s). pose proof (sigma_pos k). lia.
    + rewrite upd_other by assumption. exact H.
  - pose proof (len_slot _ _ Hx0) as Hc. specialize (H x). assert (0 < l * v) by (apply Z.mul_pos_pos; lia). destruct (Nat.eq_dec x k) as [-> | Hx].
    + rewrite upd_same. destruct He as [_ He]. unfold Rs in He.
      assert (fl k (S st k + l * c k) <= fl k (S st k) + sigma k).
      { apply gap_le with (sigma k); try apply sigma_pos; try apply fl_divides.
        - apply Z.divide_add_r; [apply fl_divides | apply Z.divide_refl].
        - pose proof (fl_le k (S st k + l * c k)). pose proof (fl_gt k (S st k)). lia. }
      lia.
    + rewrite upd_other by assumption. unfold Rs in H. lia.
  - specialize (H x). change (Rs st x < to + sigma x). unfold Rs in *. lia.
  - specialize (H x). change (Rs st x < to + sigma x). unfold Rs in *. lia.
Qed.

(** A flow whose rounded start lies after V starts no earlier than any of a lower group (GBT). *)
Lemma later_is_above st a b : T3 st -> g a <= g b -> V st < Rs st b -> Rs st a <= Rs st b.
Proof.
  intros H Hg Hv. specialize (H a). apply gap_le with (sigma a); [apply sigma_pos | apply Rs_divides | | lia].
  eapply Z.divide_trans; [apply sigma_divides; eassumption | apply Rs_divides].
Qed.

Lemma Low_init : Low init.
Proof. intros a b [[_ H] _]. discriminate. Qed.

Lemma elig_other st st' k x :
  elig st' x -> x <> k -> (forall j, j <> k -> S st' j = S st j /\ act st' j = act st j) ->
  active st x /\ Rs st' x = Rs st x /\ Rs st x <= V st'.
Proof.
  intros [[Hi Ha] He] Hx Hsame. destruct (Hsame x Hx) as [HS HA]. unfold Rs in *. rewrite HS in *.
  repeat split; auto. congruence.
Qed.

Lemma Low_step st st' : T3 st -> Low st -> step st st' -> Low st'.
Proof.
  intros H3 HL Hs. inversion Hs as [s0 k s Hk Ha Hst | s0 k l more He Hmin Hl Hx0 | s0 z to Hz Hm Hv Hto | s0 to Hno Hto]; subst;
    intros a b Hb Hg.
  - (* a flow becomes backlogged *)
    set (st' := mk (V st) (upd (S st) k s) (upd (act st) k true)) in *.
    assert (Hsame : forall j, j <> k -> S st' j = S st j /\ act st' j = act st j)
      by (intros j Hj; simpl; now rewrite !upd_other).
    destruct (Nat.eq_dec b k) as [-> | Hbk].
    + (* the newcomer lies above a *)
      assert (Hak : a <> k) by (intros ->; lia).
      assert (Ra : Rs st' a = Rs st a) by (unfold Rs; destruct (Hsame a Hak) as [-> _]; reflexivity).
      rewrite Ra. unfold Rf, Rs at 2. simpl. rewrite upd_same.
      pose proof (sigma_double a k Hg) as Hd. pose proof (H3 a) as H3a. pose proof (sigma_pos a).
      assert (HV : fu (V st) <= s -> Rs st a <= fl k s + 2 * sigma k).
      { intros Hs'. pose proof (fl_gt k s).
        assert (Rs st a <= fu (V st) + sigma a).
        { apply gap_le with u; [apply u_pos | eapply Z.divide_trans; [apply u_slot | apply Rs_divides] | |].
          - apply Z.divide_add_r; [apply fu_divides | apply u_slot].
          - pose proof (fu_gt (V st)). lia. }
        lia. }
      destruct Hst as [(b0 & Hb0 & Hgb & Hmin & ->) | [_ ->]]; [| apply HV; lia].
      destruct (Z_le_gt_dec (fu (V st)) (Rf st b0)) as [Hle | Hgt]; [apply HV; lia |].
      assert (Hlow : Rs st a <= Rf st b0) by (apply HL; [assumption | lia]).
      assert (HRf : fl k (Rf st b0) = Rf st b0).
      { apply fl_exact. eapply Z.divide_trans; [apply sigma_divides | apply Rf_divides]. lia. }
      pose proof (fl_mono k (Rf st b0) (Z.max (S st k) (Z.min (fu (V st)) (Rf st b0))) ltac:(lia)). pose proof (sigma_pos k). lia.
    + (* b was there *)
      destruct (elig_other _ _ _ _ Hb Hbk Hsame) as (Hact & HR & Hle). simpl in Hle.
      assert (Hbe : elig st b) by (split; assumption).
      unfold Rf. rewrite HR. fold (Rf st b).
      destruct (Nat.eq_dec a k) as [-> | Hak].
      * unfold Rs at 1. simpl. rewrite upd_same.
        assert (Hold : fl k (S st k) <= Rf st b) by (apply (HL k b Hbe Hg)).
        assert (Hnew : forall y, y <= Rf st b -> fl k y <= Rf st b) by (intros y Hy; pose proof (fl_le k y); lia).
        destruct Hst as [(b0 & Hb0 & Hgb & Hmin & ->) | [Hno _]].
        -- specialize (Hmin b Hbe Hg).
           destruct (Z.max_spec (S st k) (Z.min (fu (V st)) (Rf st b0))) as [[_ ->] | [_ ->]]; [apply Hnew; lia | lia].
        -- specialize (Hno b Hbe). lia.
      * unfold Rs at 1. destruct (Hsame a Hak) as [-> _]. apply HL; assumption.
  - (* a flow is served *)
    pose proof (len_slot _ _ Hx0) as Hc.
    set (st' := mk (V st + l * v) (upd (S st) k (S st k + l * c k)) (upd (act st) k more)) in *.
    assert (Hsame : forall j, j <> k -> S st' j = S st j /\ act st' j = act st j)
      by (intros j Hj; simpl; now rewrite !upd_other).
    assert (Hup : Rs st k <= Rs st' k).
    { unfold Rs. simpl. rewrite upd_same. apply fl_mono. pose proof (c_pos k). nia. }
    assert (Hup2 : Rs st' k <= Rf st k).
    { unfold Rf, Rs. simpl. rewrite upd_same. pose proof (fl_le k (S st k + l * c k)). pose proof (fl_gt k (S st k)).
      lia. }
    destruct (Nat.eq_dec b k) as [-> | Hbk].
    + assert (Hak : a <> k) by (intros ->; lia).
      unfold Rs at 1. destruct (Hsame a Hak) as [-> _]. fold (Rs st a). specialize (HL a k He Hg). unfold Rf in *. lia.
    + destruct (elig_other _ _ _ _ Hb Hbk Hsame) as (Hact & HR & Hle). simpl in Hle.
      unfold Rf. rewrite HR. fold (Rf st b).
      assert (Ha' : (exists e, elig st b /\ e = tt) \/ V st < Rs st b).
      { destruct (Z_le_gt_dec (Rs st b) (V st)); [left; exists tt; split; [split; assumption | reflexivity] | right; lia]. }
      destruct Ha' as [(_ & Hbe & _) | Hlate].
      * destruct (Nat.eq_dec a k) as [-> | Hak].
        -- specialize (Hmin b Hbe). lia.
        -- unfold Rs at 1. destruct (Hsame a Hak) as [-> _]. apply HL; assumption.
      * (* b becomes eligible by this service *)
        destruct (Nat.eq_dec a k) as [-> | Hak].
        -- pose proof (later_is_above st k b H3 ltac:(lia) Hlate). pose proof (sigma_double k b Hg).
           unfold Rf in *. pose proof (sigma_pos k). lia.
        -- unfold Rs at 1. destruct (Hsame a Hak) as [-> _]. fold (Rs st a).
           pose proof (later_is_above st a b H3 ltac:(lia) Hlate). unfold Rf. pose proof (sigma_pos b). lia.
  - (* V jumps *)
    destruct Hb as [Hact Hle]. simpl in Hle.
    change (Rs st a <= Rf st b).
    assert (Hlate : V st < Rs st b) by (specialize (Hm b Hact); lia).
    pose proof (later_is_above st a b H3 ltac:(lia) Hlate). unfold Rf. pose proof (sigma_pos b). lia.
  - (* V advances while the link idles *)
    destruct Hb as [Hact _]. now destruct (Hno b).
Qed.

Theorem invariant st : reachable st -> T3 st /\ Low st.
Proof.
  induction 1 as [| st st' _ [H3 HL] Hs]; [split; [apply T3_init | apply Low_init] |].
  split; [eapply T3_step | eapply Low_step]; eassumption.
Qed.

(** * The order that the sets of groups rest on. A head is a flow that stands for its group (Eq. 6). *)
Definition head st k := active st k /\ forall x, active st x -> g x = g k -> Rs st k <= Rs st x.
Definition blocked st k := exists b, elig st b /\ g k < g b /\ Rf st b < Rf st k.
Definition ready st k := forall b, elig st b -> g k < g b -> Rf st k <= Rf st b.

(** Theorem 6, of the sets as they are defined. *)
Theorem er_is_sorted st h i : elig st i -> ready st h -> g h < g i -> Rf st h <= Rf st i.
Proof. intros Hi Hh Hg. apply Hh; assumption. Qed.

(** Theorem 7, and more: a blocked flow finishes no earlier than any active flow below it, blocked or not, eligible
    or not. *)
Theorem blocked_is_sorted st h i : reachable st -> blocked st i -> g h < g i -> Rf st h <= Rf st i.
Proof.
  intros Hr (b & Hb & Hgb & Hf) Hg. destruct (invariant _ Hr) as [_ HL].
  assert (H1 : Rs st h <= Rf st b) by (apply HL; [assumption | lia]).
  assert (H2 : Rf st b + sigma i <= Rf st i).
  { apply gap; [apply sigma_pos | | apply Rf_divides | assumption].
    eapply Z.divide_trans; [apply sigma_divides | apply Rf_divides]. lia. }
  pose proof (sigma_double h i Hg). unfold Rf in *. lia.
Qed.

(** Theorem 8: an eligible and ready group is the only one that can block any flow below it, except groups that finish
    at the same time. *)
Theorem only_the_served_blocks st i h j :
  reachable st -> elig st i -> ready st i -> g h < g i -> elig st j -> g i < g j -> Rf st j <> Rf st i ->
  Rf st h <= Rf st j.
Proof.
  intros Hr Hi Hready Hg Hj Hgj Hne. destruct (invariant _ Hr) as [_ HL].
  assert (H1 : Rs st h <= Rf st i) by (apply HL; assumption).
  specialize (Hready j Hj Hgj).
  assert (H2 : Rf st i + sigma i <= Rf st j).
  { apply gap; [apply sigma_pos | apply Rf_divides | | lia].
    eapply Z.divide_trans; [apply sigma_divides | apply Rf_divides]. lia. }
  pose proof (sigma_double h i Hg). unfold Rf in *. lia.
Qed.

(** Section 4.1.3, items 1 and 2: ineligible flows are sorted by index, by start and by finish. *)
Theorem ineligible_is_sorted st h i :
  reachable st -> V st < Rs st i -> g h < g i -> Rs st h <= Rs st i /\ Rf st h <= Rf st i.
Proof.
  intros Hr Hv Hg. destruct (invariant _ Hr) as [H3 _].
  pose proof (later_is_above st h i H3 ltac:(lia) Hv). pose proof (sigma_double h i Hg). pose proof (sigma_pos h).
  unfold Rf. lia.
Qed.
Lemma elig_dec st x : {elig st x} + {~ elig st x}.
Proof.
  unfold elig, active. destruct (in_dec Nat.eq_dec x flows); [| right; tauto].
  destruct (bool_dec (act st x) true); [| right; tauto].
  destruct (Z_le_gt_dec (Rs st x) (V st)); [left; tauto | right; lia].
Qed.

(** The head of the lowest group in ER has the least rounded finish of all eligible flows. *)
Theorem lowest_in_er_is_least st k :
  elig st k -> ready st k ->
  (forall x, elig st x -> ready st x -> g k <= g x) ->
  (forall x, elig st x -> g x = g k -> Rf st k <= Rf st x) ->
  forall x, elig st x -> Rf st k <= Rf st x.
Proof.
  intros Hk Hr Hlow Hhead x Hx.
  destruct (least (elig st) (Rf st) flows (elig_dec st)) as [(m & Hm & Hme & Hmin) | Hno];
    [| exfalso; eapply Hno; [apply Hx | assumption]].
  (* among the least, one of the highest group *)
  destruct (least (fun y => elig st y /\ Rf st y = Rf st m) (fun y => - g y) flows) as [(z & Hz & (Hze & Hzf) & Hzmax) | Hno].
  { intros y. destruct (elig_dec st y); [| right; tauto]. destruct (Z.eq_dec (Rf st y) (Rf st m)); [left; tauto | right; tauto]. }
  2: { exfalso. eapply Hno; [apply Hm | tauto]. }
  assert (Hzr : ready st z).
  { intros b Hb Hg. destruct (Z.eq_dec (Rf st b) (Rf st m)) as [He | Hne].
    - specialize (Hzmax b ltac:(apply Hb) ltac:(tauto)). simpl in Hzmax. lia.
    - specialize (Hmin b ltac:(apply Hb) Hb). lia. }
  specialize (Hlow z Hze Hzr).
  assert (Rf st k <= Rf st z).
  { destruct (Z.eq_dec (g z) (g k)); [apply Hhead; assumption | apply Hr; [assumption | lia]]. }
  specialize (Hmin x ltac:(apply Hx) Hx). lia.
Qed.

End Qfq.
