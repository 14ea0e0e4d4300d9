(** Service down a tree of classes: [Service] of crates/core/src/bounds/hierarchy.rs.

    A class is seen through the pairs of a time and its work over all intervals in which it is backlogged. [child] is
    [Service::child]; a level is any node with a B-WFI, so every theorem of [Stamps], [SchedPlus], [Drr] and [Scfq] gives
    one. [below_ceiling] is [Service::below_ceiling], [behind] is [Service::behind]. *)
From Coq Require Import ZArith List Lia.
From Fairlane Require Import Basics.
Import ListNotations.
Open Scope Z_scope.

(** Over a time T, [unit] times the work is at least [rate * T - lag]. *)
Record service := { unit : Z; rate : Z; lag : Z }.

(** Pairs of a time and the work in it. *)
Definition intervals := Z -> Z -> Prop.

Definition offers (s : service) (P : intervals) := forall T W, P T W -> rate s * T - lag s <= unit s * W.

(** * The link, and a packet's delay *)

(** The link works all the time, and at most one packet that it took is not sent yet: [Service::of_link]. *)
Lemma of_link R L (taken sent : Z -> Z) (P : intervals) :
  (forall t, 0 <= taken t - sent t <= L) ->
  (forall T W, P T W -> exists t, W = taken (t + T) - taken t /\ sent (t + T) - sent t = R * T) ->
  offers {| unit := 1; rate := R; lag := L |} P.
Proof.
  intros Hq HP T W H. destruct (HP T W H) as (t & -> & Hs). simpl. pose proof (Hq t). pose proof (Hq (t + T)). lia.
Qed.

(** [Service::delay]: a packet with B bytes of its class up to its end waits no longer than (B + lag) / rate. *)
Lemma delay s P T W B : offers s P -> P T W -> W < B -> 0 < unit s -> rate s * T < unit s * B + lag s.
Proof. intros H HP HW Hu. specialize (H T W HP). nia. Qed.

(** * A child of a node with a B-WFI *)

(** A child with [share * work of the node - wfi <= whole * its own work]. *)
Record level := { share : Z; whole : Z; wfi : Z }.

Definition child s n := {| unit := unit s * whole n; rate := share n * rate s; lag := share n * lag s + unit s * wfi n |}.

(** While the child is backlogged so is the node, and its B-WFI holds in the node's own work. *)
Definition inside (n : level) (node below : intervals) :=
  forall T W, below T W -> exists Wn, node T Wn /\ share n * Wn - wfi n <= whole n * W.

Theorem child_offers s n node below :
  0 <= unit s -> 0 <= share n -> offers s node -> inside n node below -> offers (child s n) below.
Proof.
  intros Hu Hp Hs Hi T W H. destruct (Hi T W H) as (Wn & Hn & Hw). specialize (Hs T Wn Hn). simpl.
  assert (share n * (rate s * T - lag s) <= share n * (unit s * Wn)) by (apply Z.mul_le_mono_nonneg_l; assumption).
  assert (unit s * (share n * Wn - wfi n) <= unit s * (whole n * W)) by (apply Z.mul_le_mono_nonneg_l; assumption). lia.
Qed.

(** * A ceiling *)

Section Ceiling.

(** Rate and burst of the ceiling, longest packet: in the units of the service, and of one unit of time. *)
Variables c b L : Z.
(** Pairs of a time and a work over intervals in which the class is backlogged and not held. *)
Variable free : intervals.
Hypothesis L_pos : 0 < L.

(** Debt: sent bytes that the ceiling has not brought in again. [x] and [y]: time and work since the last hold. *)
Record state := mk { T : Z; W : Z; debt : Z; held : bool; x : Z; y : Z }.

(** [Ceilings::charge] and [Ceilings::hold], [Ceilings::release] at a whole unit of time. *)
Inductive step : state -> state -> Prop :=
| send st l :
    held st = false -> 0 < l <= L ->
    step st (mk (T st) (W st + l) (debt st + l) (b - L <? debt st + l) (x st) (y st + l))
| pass st :
    held st = false -> free (x st + 1) (y st) ->
    step st (mk (T st + 1) (W st) (Z.max 0 (debt st - c)) false (x st + 1) (y st))
| wait st :
    held st = true -> b - L < debt st - c ->
    step st (mk (T st + 1) (W st) (debt st - c) true 0 0)
| release st :
    held st = true -> debt st - c <= b - L ->
    step st (mk (T st + 1) (W st) (debt st - c) false 0 0).

(** A run starts at any debt. *)
Inductive reachable : state -> Prop :=
| r_start d : 0 <= d <= b -> reachable (mk 0 0 d (b - L <? d) 0 0)
| r_step st st' : reachable st -> step st st' -> reachable st'.

Definition ceiled : intervals := fun t w => exists st, reachable st /\ T st = t /\ W st = w.

(** The class takes no more than the ceiling and its burst. *)
Theorem ceiling_most st : 0 < c -> c <= b - L -> reachable st -> 0 <= debt st <= b /\ W st <= c * T st + debt st.
Proof.
  intros Hc Hb. induction 1 as [d Hd | st st' Hr IH H]; [simpl; lia |].
  assert (Hh : held st = false -> debt st <= b - L).
  { clear - Hr Hc Hb L_pos. intros H. induction Hr as [d Hd | st st' Hr IH Hs]; [simpl in *; apply Z.ltb_ge in H; lia |].
    inversion Hs; subst; simpl in *; try discriminate; [apply Z.ltb_ge in H; lia | specialize (IH H0); lia | lia]. }
  assert (Hh' : held st = true -> b - L < debt st).
  { clear - Hr Hc Hb L_pos. intros H. induction Hr as [d Hd | st st' Hr IH Hs]; [simpl in *; apply Z.ltb_lt in H; lia |].
    inversion Hs; subst; simpl in *; try discriminate; [apply Z.ltb_lt in H; lia | lia]. }
  inversion H; subst; simpl; [specialize (Hh H0) | specialize (Hh H0) | specialize (Hh' H0) | specialize (Hh' H0)]; lia.
Qed.

(** Service without the ceiling, of rate [r] and lag [s]; [room] is b - L_k and the part of a unit of time at a hold's
    end. *)
Variables r s rho : Z.
Hypothesis free_service : forall t w, free t w -> r * t - s <= w.
Let room := b - L - c.
Hypothesis c_pos : 0 < c.
Hypothesis r_nonneg : 0 <= r.
Hypothesis s_nonneg : 0 <= s.
Hypothesis room_pos : 0 < room.
Hypothesis rho_nonneg : 0 <= rho.
Hypothesis rho_ceiling : rho <= c.
Hypothesis rho_rate : rho <= r.
Hypothesis rho_part : rho * s <= r * room.

(** [room] covers the credit that is lost while the class waits for service. *)
Lemma covered t w : 0 <= t -> 0 <= w -> r * t - s <= w -> rho * t <= room + w.
Proof.
  intros Ht Hw Hs. destruct (Z_le_gt_dec s room) as [Hsr | Hsr]; [nia |].
  destruct (Z_le_gt_dec (r * t) s) as [Hrt | Hrt].
  - assert (rho * s * t <= r * room * t) by (apply Z.mul_le_mono_nonneg_r; lia).
    assert (room * (r * t) <= room * s) by (apply Z.mul_le_mono_nonneg_l; lia).
    assert (s * (rho * t) <= s * room) by lia. nia.
  - assert (H : s * (rho * t) <= s * (room + (r * t - s))); [| nia].
    assert (rho * s * t <= r * room * t) by (apply Z.mul_le_mono_nonneg_r; lia).
    assert (0 <= (s - room) * (r * t - s)) by (apply Z.mul_nonneg_nonneg; lia). lia.
Qed.

Record Inv st : Prop := {
  i_debt : 0 <= debt st;
  i_held : held st = true -> b - L < debt st;
  i_stretch : 0 <= x st /\ 0 <= y st /\ r * x st - s <= y st;
  i_all : rho * T st + debt st - b <= W st;
  i_since : held st = false -> rho * (T st - x st) + room - b <= W st - y st }.

Lemma inv st : reachable st -> Inv st.
Proof.
  induction 1 as [d Hd | st st' Hr [H1 H2 H3 H4 H5] H]; [constructor; simpl; unfold room; lia |].
  inversion H as [s0 l Hh Hl | s0 Hh Hf | s0 Hh Hd | s0 Hh Hd]; subst; rewrite Hh in *.
  - specialize (H5 eq_refl). constructor; simpl; lia.
  - (* time passes: the debt falls, or is paid *)
    specialize (free_service _ _ Hf). specialize (H5 eq_refl). constructor; simpl; try lia.
    destruct (Z_le_gt_dec c (debt st)); [lia |]. pose proof (covered (x st + 1) (y st)). lia.
  - specialize (H2 eq_refl). constructor; simpl; unfold room in *; lia.
  - specialize (H2 eq_refl). constructor; simpl; unfold room in *; lia.
Qed.

(** Rate min(c, r min(1, (b - L_k) / s)) and lag s + L_k, with the part of a unit of time. *)
Theorem below_ceiling : offers {| unit := 1; rate := rho; lag := s + L + c |} ceiled.
Proof.
  intros t w (st & Hr & <- & <-). destruct (inv st Hr) as [H1 H2 H3 H4 H5]. simpl. destruct (held st).
  - specialize (H2 eq_refl). lia.
  - specialize (H5 eq_refl). unfold room in *. nia.
Qed.

End Ceiling.

(** * Behind others with ceilings, under strict priority *)

(** Of the node's work, the others take no more than their ceilings and bursts. *)
Theorem behind s (node low : intervals) rates bursts :
  0 <= unit s -> offers s node ->
  (forall t w, low t w -> exists wn wo, node t wn /\ wn = w + wo /\ unit s * wo <= rates * t + bursts) ->
  offers {| unit := unit s; rate := rate s - rates; lag := lag s + bursts |} low.
Proof. intros Hu Hs Hl t w H. destruct (Hl t w H) as (wn & wo & Hn & -> & Ho). specialize (Hs _ _ Hn). simpl. lia. Qed.

(** * A path from the link to a class *)

(** In the units of the service, one byte is [unit s]. *)
Definition in_units (s : service) (P : intervals) : intervals := fun t w => exists w', w = unit s * w' /\ P t w'.

(** A node of a path: a share of its parent, maybe with a ceiling, or behind others. *)
Inductive path : service -> intervals -> Prop :=
| p_link s P : 0 < unit s -> 0 <= rate s -> 0 <= lag s -> offers s P -> path s P
| p_child s P n (Q : intervals) :
    path s P -> 0 <= share n -> 0 < whole n -> 0 <= wfi n -> inside n P Q -> path (child s n) Q
| p_ceiling s P c b L rho (Q : intervals) :
    path s P -> 0 < c -> 0 < L -> 0 < b - L - c -> 0 <= rho <= c -> rho <= rate s ->
    rho * lag s <= rate s * (b - L - c) ->
    (forall t w, Q t w -> ceiled c b L (in_units s P) t (unit s * w)) ->
    path {| unit := unit s; rate := rho; lag := lag s + L + c |} Q
| p_behind s P rates bursts (Q : intervals) :
    path s P -> 0 <= rates <= rate s -> 0 <= bursts ->
    (forall t w, Q t w -> exists wn wo, P t wn /\ wn = w + wo /\ unit s * wo <= rates * t + bursts) ->
    path {| unit := unit s; rate := rate s - rates; lag := lag s + bursts |} Q.

(** A class has the service that [Service] computes along its path. *)
Theorem path_offers s P : path s P -> 0 < unit s /\ 0 <= rate s /\ 0 <= lag s /\ offers s P.
Proof.
  induction 1 as [s P Hu Hr Hl Ho | s P n Q Hp (Hu & Hr & Hl & Ho) Hs Hw Hf Hi
    | s P c b L rho Q Hp (Hu & Hr & Hl & Ho) Hc HL Hroom Hrho Hrate Hpart HQ
    | s P rates bursts Q Hp (Hu & Hr & Hl & Ho) Hrates Hb HQ]; simpl.
  - auto.
  - repeat split; try nia. eapply child_offers; eauto; lia.
  - repeat split; try lia. intros t w H. specialize (HQ t w H).
    assert (Hfree : forall t w, in_units s P t w -> rate s * t - lag s <= w).
    { intros t' w' (w'' & -> & HP). apply Ho. exact HP. }
    pose proof (below_ceiling c b L (in_units s P) HL (rate s) (lag s) rho Hfree Hc Hr Hl Hroom (proj1 Hrho) (proj2 Hrho)
      Hrate Hpart t (unit s * w) HQ) as Hb. simpl in *. lia.
  - repeat split; try lia. apply (behind s P Q rates bursts ltac:(lia) Ho HQ).
Qed.
