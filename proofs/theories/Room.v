(** Buffer reservation: a class within its rate and burst loses nothing ([Service::room] of crates/core/src/bounds/room.rs).

    The model follows crates/core/src/tree/displace.rs:
    - [accept] is an enqueue for which [Tree::fits] holds.
    - [give] is one round of [Tree::make_room]: the class that exceeds its reservation most, and by more than the
      class of the arriving packet, loses a packet. Any of its packets may be the one.
    - [reject] is [Tree::make_room] with no such class.
    - [send] is a dequeue.
    [beyond] is [Measure::beyond]. The classes of the model hold packets themselves. A class of flows counts as one class. *)
From Coq Require Import ZArith List Lia.
From Fairlane Require Import Sums.
Import ListNotations.
Open Scope Z_scope.

Section Room.

Variable classes : list nat.
Hypothesis nodup : NoDup classes.
(** Reserved packets and bytes of each class, capacity of the link in both, bytes for each packet. *)
Variables op ob : nat -> Z.
Variables P B per : Z.
Hypothesis op_nonneg : forall k, 0 <= op k.
Hypothesis ob_nonneg : forall k, 0 <= ob k.
Hypothesis per_pos : 0 < per.
(** [Tree::may_keep] *)
Hypothesis packets_fit : sum op classes <= P.
Hypothesis bytes_fit : sum ob classes <= B.

(** The lengths of the queued packets of each class. *)
Definition state := nat -> list Z.

Definition total (l : list Z) := fold_right Z.add 0 l.
Definition packets (st : state) k := Z.of_nat (length (st k)).
Definition bytes (st : state) k := total (st k).

Definition fits st len := sum (packets st) classes + 1 <= P /\ sum (bytes st) classes + len <= B.
Definition excess n b k := Z.max (per * Z.max 0 (n - op k)) (Z.max 0 (b - ob k)).
Definition beyond st k := excess (packets st k) (bytes st k) k.
Definition with_it st k len := excess (packets st k + 1) (bytes st k + len) k.

Inductive event := Accept (k : nat) (len : Z) | Give (k j : nat) (len : Z) | Reject (k : nat) (len : Z) | Send (k : nat) (len : Z).

Inductive step : state -> event -> state -> Prop :=
| accept st k len : In k classes -> 0 < len -> fits st len -> step st (Accept k len) (upd st k (st k ++ [len]))
| give st k len j a l b :
    In k classes -> 0 < len -> ~ fits st len -> In j classes ->
    with_it st k len < beyond st j -> (forall i, In i classes -> beyond st i <= beyond st j) ->
    st j = a ++ l :: b -> step st (Give k j len) (upd st j (a ++ b))
| reject st k len :
    In k classes -> 0 < len -> ~ fits st len -> (forall j, In j classes -> beyond st j <= with_it st k len) ->
    step st (Reject k len) st
| send st k l b : In k classes -> st k = l :: b -> step st (Send k l) (upd st k b).

Definition within n b k := n <= op k /\ b <= ob k.

Lemma within_excess n b k : within n b k -> excess n b k = 0.
Proof. intros [Hn Hb]. unfold excess. nia. Qed.

Lemma excess_beyond n b k : ~ within n b k -> 0 < excess n b k.
Proof. unfold within, excess. intros H. destruct (Z_le_gt_dec n (op k)); nia. Qed.

Lemma within_dec n b k : {within n b k} + {~ within n b k}.
Proof. unfold within. destruct (Z_le_gt_dec n (op k)), (Z_le_gt_dec b (ob k)); [left | right | right | right]; lia. Qed.

(** No class within its reservation is evicted from. *)
Theorem within_never_gives st k j len st' :
  step st (Give k j len) st' -> within (packets st j) (bytes st j) j -> False.
Proof.
  intros H Hw. inversion H; subst. apply within_excess in Hw. unfold beyond in *. rewrite Hw in *.
  unfold with_it, excess in *. nia.
Qed.

(** Either all classes are within their reservation, or one is not. *)
Lemma some_beyond st l :
  (forall j, In j l -> within (packets st j) (bytes st j) j) \/ (exists j, In j l /\ ~ within (packets st j) (bytes st j) j).
Proof.
  induction l as [| y l IH]; [left; intros j [] |].
  destruct (within_dec (packets st y) (bytes st y) y) as [Hy | Hy]; [| right; exists y; split; [now left | assumption]].
  destruct IH as [IH | (j & Hj & Hn)]; [left; intros j [<- | Hj]; auto | right; exists j; split; [now right | assumption]].
Qed.

(** A packet that fits the reservation of its class is not rejected: in a full link, another class exceeds its own. *)
Theorem within_never_rejected st k len st' :
  step st (Reject k len) st' -> within (packets st k + 1) (bytes st k + len) k -> False.
Proof.
  intros H Hw. assert (st' = st) as -> by now inversion H. inversion H as [| | s0 k0 l0 Hk Hlen Hfull Hmost |]; subst.
  apply within_excess in Hw as Hz. destruct (some_beyond st classes) as [Hall | (j & Hj & Hn)].
  - apply Hfull. destruct Hw as [Hwp Hwb]. split.
    + pose proof (sum_others (packets st) op k classes nodup Hk ltac:(intros j Hj _; apply (Hall j Hj))). lia.
    + pose proof (sum_others (bytes st) ob k classes nodup Hk ltac:(intros j Hj _; apply (Hall j Hj))). lia.
  - specialize (Hmost j Hj). pose proof (excess_beyond _ _ _ Hn). unfold beyond, with_it in Hmost. lia.
Qed.

(** Each round accepts, rejects, or removes a packet, so every arrival is decided. *)
Theorem arrival_is_decided st k len :
  In k classes -> 0 < len ->
  exists e st', step st e st' /\ (e = Accept k len \/ e = Reject k len \/ exists j, e = Give k j len).
Proof.
  intros Hk Hlen.
  assert (Hd : fits st len \/ ~ fits st len).
  { unfold fits. destruct (Z_le_gt_dec (sum (packets st) classes + 1) P), (Z_le_gt_dec (sum (bytes st) classes + len) B); [left | right | right | right]; lia. }
  destruct Hd as [Hfit | Hfull]; 
    [exists (Accept k len), (upd st k (st k ++ [len])); split; [now apply accept | now left] |].
  destruct (least (fun j => with_it st k len < beyond st j) (fun j => - beyond st j) classes) as [(j & Hj & Hb & Hm) | Hno].
  { intros x. destruct (Z_lt_dec (with_it st k len) (beyond st x)); [left | right]; assumption. }
  - destruct (st j) as [| l b] eqn:Hq.
    + exfalso. unfold beyond, with_it, packets, bytes in Hb. rewrite Hq in Hb. simpl in Hb. unfold excess in Hb.
      pose proof (op_nonneg j). pose proof (ob_nonneg j). nia.
    + exists (Give k j len), (upd st j b). split; [| right; right; now exists j].
      apply (give st k len j [] l b); try assumption.
      intros i Hi. destruct (Z_lt_dec (with_it st k len) (beyond st i)) as [H | H]; [specialize (Hm i Hi H); lia | lia].
  - exists (Reject k len), st. split; [| right; now left]. apply reject; try assumption.
    intros j Hj. specialize (Hno j Hj). lia.
Qed.

(** * A run of the link, and one class that keeps to its rate and burst *)

Variable st : nat -> state.
Variable ev : nat -> event.
Variable time : nat -> Z.
Hypothesis starts_empty : forall k, st 0%nat k = [].
Hypothesis runs : forall n, step (st n) (ev n) (st (S n)).

Variable k : nat.
(** Bytes are counted in units of which [s] are a byte; in one unit of time, [rate] such units are guaranteed. *)
Variables s rate burst lag shortest : Z.
Hypothesis s_pos : 0 < s.
Hypothesis burst_nonneg : 0 <= burst.
Hypothesis lag_nonneg : 0 <= lag.
Hypothesis shortest_pos : 0 < shortest.

(** A packet counts for no less than [shortest]. *)
Definition counted len := Z.max len shortest.

Definition offer e := match e with Accept j len | Reject j len => if Nat.eqb j k then counted len else 0 | _ => 0 end.
Definition sends e := match e with Send j len => if Nat.eqb j k then len else 0 | _ => 0 end.
Definition loses e := match e with Reject j _ => j = k | Give _ j _ => j = k | _ => False end.

Fixpoint offered n := match n with O => 0 | S n => offered n + offer (ev n) end.
Fixpoint sent n := match n with O => 0 | S n => sent n + sends (ev n) end.

(** Its arrivals keep to the rate and the burst over any time, and so does its service, strict, less the lag. *)
Hypothesis conforms : forall m n, (m <= n)%nat -> s * (offered (S n) - offered m) <= s * burst + rate * (time n - time m).
Hypothesis service : forall m n, (m <= n)%nat -> (forall i, (m < i <= n)%nat -> st i k <> []) ->
  rate * (time n - time m) - s * lag <= s * (sent (S n) - sent m).
(** [Service::room] *)
Hypothesis room_bytes : burst + lag <= ob k.
Hypothesis room_packets : (burst + lag) / shortest <= op k.

Definition held n := total (map counted (st n k)).

Lemma total_app a b : total (a ++ b) = total a + total b.
Proof. induction a as [| x a IH]; simpl; [lia | rewrite IH; lia]. Qed.

Lemma held_covers n : bytes (st n) k <= held n /\ shortest * packets (st n) k <= held n.
Proof.
  unfold bytes, packets, held. induction (st n k) as [| x l [IH1 IH2]]; [simpl; lia |].
  cbn [map total fold_right length]. fold (total l). fold (total (map counted l)). unfold counted at 1 3. lia.
Qed.

(** Without a loss, the backlog is the difference of arrivals and departures, of which each counts for no less. *)
Lemma held_step n : ~ loses (ev n) -> held (S n) <= held n + offer (ev n) - sends (ev n).
Proof.
  intros Hl. pose proof (runs n) as H. unfold held. destruct (ev n) as [j len | i j len | j len | j len]; inversion H; subst; simpl in *.
  - destruct (Nat.eqb_spec j k) as [-> |].
    + rewrite upd_same, map_app, total_app. simpl. lia.
    + rewrite upd_other by congruence. lia.
  - rewrite upd_other by congruence. lia.
  - destruct (Nat.eqb_spec j k); [congruence |]. lia.
  - destruct (Nat.eqb_spec j k) as [-> |].
    + rewrite upd_same. match goal with H : st n k = _ |- _ => rewrite H end. simpl. unfold counted at 2. lia.
    + rewrite upd_other by congruence. lia.
Qed.

Lemma held_since m n : (m <= n)%nat -> (forall i, (m <= i < n)%nat -> ~ loses (ev i)) ->
  held n <= held m + (offered n - offered m) - (sent n - sent m).
Proof.
  intros Hmn. induction Hmn as [| n Hmn IH]; intros Hl; [lia |].
  pose proof (held_step n (Hl n ltac:(lia))). simpl. specialize (IH ltac:(intros i Hi; apply Hl; lia)). lia.
Qed.

(** The last time at which the class was empty. *)
Lemma last_empty n : exists m, (m <= n)%nat /\ st m k = [] /\ forall i, (m < i <= n)%nat -> st i k <> [].
Proof.
  induction n as [| n (m & Hm & He & Hi)]; [exists 0%nat; repeat split; [lia | apply starts_empty | lia] |].
  destruct (st (S n) k) eqn:Hq.
  - exists (S n). repeat split; [lia | assumption | lia].
  - exists m. repeat split; [lia | assumption |]. intros i H. destruct (Nat.eq_dec i (S n)) as [-> | ?]; [congruence | apply Hi; lia].
Qed.

(** With the packet that arrives now, the class is within its room. *)
Lemma stays_within n : (forall i, (i < n)%nat -> ~ loses (ev i)) -> held n + offer (ev n) - sends (ev n) <= burst + lag.
Proof.
  intros Hl. destruct (last_empty n) as (m & Hm & He & Hi).
  pose proof (held_since m n Hm ltac:(intros i H; apply Hl; lia)) as Hh.
  pose proof (conforms m n Hm) as Hc. pose proof (service m n Hm Hi) as Hs.
  assert (Hz : held m = 0) by (unfold held; rewrite He; reflexivity). simpl in Hc, Hs. nia.
Qed.

(** The theorem of [Service::room]: the class loses no packet, at any load of the others. *)
Theorem loses_nothing n : ~ loses (ev n).
Proof.
  induction n as [n IH] using (well_founded_induction Wf_nat.lt_wf). intros Hloss.
  pose proof (stays_within n IH) as Hw. pose proof (held_covers n) as [Hb Hp]. pose proof (runs n) as Hr.
  assert (Hpk : forall x, shortest * x <= burst + lag -> x <= op k).
  { intros x Hx. assert (x <= (burst + lag) / shortest); [| lia]. apply Z.div_le_lower_bound; lia. }
  destruct (ev n) as [j len | i j len | j len | j len] eqn:He; simpl in Hloss; try contradiction; subst j.
  - apply (within_never_gives _ _ _ _ _ Hr). simpl in Hw. split; [apply Hpk; lia | lia].
  - apply (within_never_rejected _ _ _ _ Hr). simpl in Hw. rewrite Nat.eqb_refl in Hw. unfold counted in Hw.
    split; [apply Hpk; lia | lia].
Qed.

(** It never holds more than its room. *)
Corollary holds_at_most n : bytes (st n) k <= burst + lag /\ packets (st n) k <= (burst + lag) / shortest.
Proof.
  pose proof (held_covers n) as [Hb Hp]. assert (held n <= burst + lag).
  { destruct n as [| n]; [unfold held; rewrite starts_empty; simpl; lia |].
    pose proof (held_step n (loses_nothing n)). pose proof (stays_within n (fun i _ => loses_nothing i)). lia. }
  split; [lia | apply Z.div_le_lower_bound; lia].
Qed.

End Room.
