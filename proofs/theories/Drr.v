(** Deficit round robin, and its bounds.

    The model follows crates/core/src/sched/drr.rs, in units of a deficit (2^-20 bytes):
    - [arrive] is [Drr::insert]. It grants [max(quantum, head)], which is the quantum where that covers the longest
      packet ([a_quantum_covers]). With a smaller quantum, only the quantum itself keeps the bound.
    - [rest] is [Drr::idle] of the selected entity after its last packet: no credit is kept.
    - [stay] and [turn] are the two ends of [Drr::advance]. [turn] with nothing sent passes over a flow of which the
      deficit does not cover the head. This needs a quantum below the longest packet ([no_turn_is_empty]).
    [hd] is the announced length of the next packet: its own length ([Head::Known]), or the longest packet
    ([Head::Longest], where less may be charged). [hd <= l + h] holds for both.
    One unit of packets, all of it settled: a change of U ([Drr::unsettled]) is not in the model. *)
From Coq Require Import ZArith List Lia Bool Permutation.
From Fairlane Require Import Sums.
Import ListNotations.
Open Scope Z_scope.

Section Drr.

Variable flows : list nat.
Hypothesis nodup : NoDup flows.
(** Quantum, longest packet. *)
Variables q mx : nat -> Z.
Hypothesis q_pos : forall k, 0 < q k.
Hypothesis mx_pos : forall k, 0 < mx k.

Record state := mk { ring : list nat; d : nat -> Z; hd : nat -> Z }.

(** A step, with the flow, the bytes that it sends, and the turns that it ends. *)
Inductive step : state -> state -> nat -> Z -> Z -> Prop :=
| arrive st k h :
    In k flows -> ~ In k (ring st) -> 0 < h <= mx k ->
    step st (mk (ring st ++ [k]) (upd (d st) k (q k)) (upd (hd st) k h)) k 0 0
| rest st k r l :
    ring st = k :: r -> hd st k <= d st k -> 0 < l <= hd st k ->
    step st (mk r (upd (d st) k 0) (hd st)) k l 0
| stay st k r l h :
    ring st = k :: r -> hd st k <= d st k -> 0 < l <= hd st k ->
    0 < h <= mx k -> hd st k <= l + h -> h <= d st k - l ->
    step st (mk (k :: r) (upd (d st) k (d st k - l)) (upd (hd st) k h)) k l 0
| turn st k r l h :
    ring st = k :: r ->
    (hd st k <= d st k /\ 0 < l <= hd st k /\ 0 < h <= mx k /\ hd st k <= l + h) \/ (l = 0 /\ h = hd st k) ->
    d st k - l < h ->
    step st (mk (r ++ [k]) (upd (d st) k (d st k - l + q k)) (upd (hd st) k h)) k l 1.

Definition init := mk [] (fun _ => 0) (fun _ => 0).

Inductive reachable : state -> Prop :=
| r_init : reachable init
| r_step st st' k l e : reachable st -> step st st' k l e -> reachable st'.

Record Inv st := {
  i_nodup : NoDup (ring st);
  i_flows : forall k, In k (ring st) -> In k flows;
  i_idle : forall k, ~ In k (ring st) -> d st k = 0;
  i_pos : forall k, In k (ring st) -> 0 < d st k;
  i_head : forall k, In k (ring st) -> 0 < hd st k <= mx k;
  (** The rest of a turn is less than the packet that did not fit. *)
  i_most : forall k, In k (ring st) -> d st k < q k + hd st k;
  (** Behind the head, each has its quantum. *)
  i_waits : forall a r k, ring st = a :: r -> In k r -> q k <= d st k }.

Lemma nodup_back k (r : list nat) : NoDup (k :: r) -> NoDup (r ++ [k]).
Proof. intros H. eapply Permutation_NoDup; [apply Permutation_cons_append | exact H]. Qed.

Ltac at_flow x k := destruct (Nat.eq_dec x k) as [-> | ?]; [rewrite ?upd_same | rewrite ?upd_other by assumption].

Lemma inv_step st st' k l e : Inv st -> step st st' k l e -> Inv st'.
Proof.
  intros [H1 H2 H3 H4 H5 H6 H7] Hs.
  inversion Hs as [s0 k0 h Hk Ho Hh | s0 k0 r l0 Hr Hd Hl | s0 k0 r l0 h Hr Hd Hl Hh Hn Hst
                  | s0 k0 r l0 h Hr Hc Hst]; subst; pose proof (q_pos k) as Hq.
  - assert (Hin : forall x, In x (ring st ++ [k]) -> x = k \/ In x (ring st) /\ x <> k).
    { intros x Hx. apply in_app_or in Hx. destruct (Nat.eq_dec x k); [now left | right].
      destruct Hx as [Hx | [-> | []]]; [auto | contradiction]. }
    constructor; simpl.
    + apply nodup_back. now constructor.
    + intros x Hx. destruct (Hin x Hx) as [-> | [? _]]; auto.
    + intros x Hx. at_flow x k; [exfalso; apply Hx, in_or_app; right; now left |].
      apply H3. intros Hi. apply Hx, in_or_app. now left.
    + intros x Hx. destruct (Hin x Hx) as [-> | [? ?]]; [rewrite upd_same; lia | rewrite upd_other; auto].
    + intros x Hx. destruct (Hin x Hx) as [-> | [? ?]]; [rewrite upd_same; lia | rewrite upd_other; auto].
    + intros x Hx. destruct (Hin x Hx) as [-> | [? ?]]; [rewrite !upd_same; lia | rewrite !upd_other; auto].
    + intros a r x Hr Hx. at_flow x k; [lia |]. destruct (ring st) as [| b r0] eqn:E; simpl in Hr.
      * injection Hr as _ <-. destruct Hx.
      * injection Hr as _ <-. apply in_app_or in Hx. destruct Hx as [Hx | [Hx | []]]; [eauto | congruence].
  - rewrite Hr in *. inversion H1 as [| y r' Hy Hn']; subst. constructor; simpl.
    + assumption.
    + intros x Hx. apply H2. now right.
    + intros x Hx. at_flow x k; [reflexivity |]. apply H3. intros [<- | Hi]; contradiction.
    + intros x Hx. rewrite upd_other by (intros ->; contradiction). apply H4. now right.
    + intros x Hx. apply H5. now right.
    + intros x Hx. rewrite upd_other by (intros ->; contradiction). apply H6. now right.
    + intros a r0 x Hr0 Hx. subst r. rewrite upd_other by (intros ->; apply Hy; now right).
      eapply H7; [reflexivity | now right].
  - rewrite Hr in *. inversion H1 as [| y r' Hy Hn']; subst. pose proof (H6 k (or_introl eq_refl)) as H6k.
    constructor; simpl.
    + assumption.
    + assumption.
    + intros x Hx. rewrite upd_other by (intros ->; apply Hx; now left). auto.
    + intros x Hx. at_flow x k; [lia | auto].
    + intros x Hx. at_flow x k; [lia | auto].
    + intros x Hx. at_flow x k; [lia | auto].
    + intros a r0 x Hr0 Hx. injection Hr0 as -> ->. rewrite upd_other by (intros ->; contradiction). eauto.
  - rewrite Hr in *. inversion H1 as [| y r' Hy Hn']; subst.
    pose proof (H4 k (or_introl eq_refl)) as H4k. pose proof (H5 k (or_introl eq_refl)) as H5k.
    assert (Hin : forall x, In x (r ++ [k]) <-> In x (k :: r)).
    { intros x. rewrite in_app_iff. simpl. tauto. }
    assert (Hdl : 0 <= d st k - l) by (destruct Hc; lia). assert (Hh : 0 < h <= mx k) by (destruct Hc as [| [_ ->]]; lia).
    constructor; simpl.
    + now apply nodup_back.
    + intros x Hx. apply H2. now apply Hin.
    + intros x Hx. rewrite upd_other; [apply H3; intros Hi; apply Hx; now apply Hin |].
      intros ->. apply Hx, Hin. now left.
    + intros x Hx. apply Hin in Hx. at_flow x k; [lia | auto].
    + intros x Hx. apply Hin in Hx. at_flow x k; [lia | auto].
    + intros x Hx. apply Hin in Hx. at_flow x k; [lia | auto].
    + intros a r0 x Hr0 Hx. at_flow x k; [lia |].
      assert (Hx' : In x (r ++ [k])) by (rewrite Hr0; now right). apply Hin in Hx'.
      destruct Hx' as [<- | Hx']; [contradiction | eauto].
Qed.

Theorem invariant st : reachable st -> Inv st.
Proof.
  induction 1 as [| st st' k l e _ IH Hs]; [| eapply inv_step; eassumption].
  constructor; simpl; try easy. constructor.
Qed.

(** Where each quantum covers the longest packet, a deficit covers the head, so no flow is passed over. *)
Theorem no_turn_is_empty st :
  (forall k, mx k <= q k) -> reachable st -> forall k, In k (ring st) -> hd st k <= d st k.
Proof.
  intros Hc. induction 1 as [| st st' k l e Hr IH Hs]; [intros k [] |]. pose proof (invariant _ Hr) as Hi.
  inversion Hs as [s0 k0 h Hk Ho Hh | s0 k0 r l0 Hr0 Hd Hl | s0 k0 r l0 h Hr0 Hd Hl Hh Hn Hst
                  | s0 k0 r l0 h Hr0 Hx Hst]; subst; simpl; intros x Hx'.
  - specialize (Hc k). at_flow x k; [lia |]. apply IH. apply in_app_or in Hx'. destruct Hx' as [| [<- | []]]; tauto.
  - pose proof (i_nodup _ Hi) as Hn. rewrite Hr0 in *. inversion Hn; subst.
    rewrite upd_other by (intros ->; contradiction). apply IH. now right.
  - rewrite Hr0 in *. at_flow x k; [lia | auto].
  - assert (Hin : In x (ring st)) by (rewrite Hr0; apply in_app_or in Hx'; simpl in *; tauto).
    specialize (Hc k). pose proof (IH x Hin). at_flow x k; [destruct Hx as [| [-> ->]]; lia | assumption].
Qed.

(** And [Drr::insert] grants the quantum. *)
Lemma a_quantum_covers k h : mx k <= q k -> h <= mx k -> Z.max (q k) h = q k.
Proof. lia. Qed.

(** [j] comes before [k]. *)
Fixpoint ahead j k (l : list nat) :=
  match l with [] => false | x :: l => if Nat.eqb x j then true else if Nat.eqb x k then false else ahead j k l end.

Lemma ahead_app j k l x : In k l -> ahead j k (l ++ [x]) = ahead j k l.
Proof.
  induction l as [| y l IH]; intros H; [destruct H |]. simpl.
  destruct (Nat.eqb_spec y j); [reflexivity |]. destruct (Nat.eqb_spec y k); [reflexivity |].
  apply IH. destruct H; [contradiction | assumption].
Qed.

Lemma ahead_in j k l : ahead j k l = true -> In j l.
Proof.
  induction l as [| y l IH]; simpl; [discriminate |].
  destruct (Nat.eqb_spec y j); [now left |]. destruct (Nat.eqb y k); [discriminate | auto].
Qed.

Lemma ahead_last j k l : j <> k -> In j l -> ~ In k l -> ahead j k (l ++ [k]) = true.
Proof.
  induction l as [| y l IH]; intros Hjk Hj Hk; [destruct Hj |]. simpl.
  destruct (Nat.eqb_spec y j); [reflexivity |]. destruct (Nat.eqb_spec y k); [exfalso; apply Hk; now left |].
  apply IH; [assumption | destruct Hj; [contradiction | assumption] | intros H; apply Hk; now right].
Qed.

(** A run in which [k] always has something to send: turns that [k] ended, and the work of each flow. *)
Inductive run k : state -> state -> Z -> (nat -> Z) -> Prop :=
| run_refl st : In k (ring st) -> run k st st 0 (fun _ => 0)
| run_step st0 st st' t w i l e :
    run k st0 st t w -> step st st' i l e -> In k (ring st') ->
    run k st0 st' (t + if Nat.eqb i k then e else 0) (upd w i (w i + l)).

Lemma run_reachable k st0 st t w : reachable st0 -> run k st0 st t w -> reachable st.
Proof.
  intros Hr H. induction H as [| st0 st st' t w i l e H IH Hs Hk]; [assumption |].
  eapply r_step; [apply IH; assumption | eassumption].
Qed.

Lemma run_active k st0 st t w : run k st0 st t w -> In k (ring st0) /\ In k (ring st).
Proof. induction 1; tauto. Qed.

(** Of [k], a turn's quantum each. *)
Lemma run_own k st0 st t w : reachable st0 -> run k st0 st t w -> w k = t * q k + d st0 k - d st k.
Proof.
  intros Hr H. induction H as [st H | st0 st st' t w i l e H IH Hs Hk]; [lia |].
  pose proof (invariant _ (run_reachable _ _ _ _ _ Hr H)) as Hi. specialize (IH Hr).
  pose proof (i_nodup _ Hi) as Hn.
  inversion Hs as [s0 k0 h Hf Ho Hh | s0 k0 r l0 Hring Hd Hl | s0 k0 r l0 h Hring Hd Hl Hh Hn' Hst
                  | s0 k0 r l0 h Hring Hc Hst]; subst; simpl in *; destruct (Nat.eqb_spec i k) as [-> | Hik];
    rewrite ?upd_same, ?upd_other by congruence; try lia.
  - apply run_active in H. tauto.
  - rewrite Hring in Hn. inversion Hn. contradiction.
Qed.

(** Behind [k] in the round, [j] has had as many turns as [k]; before it or idle, one less. [e] is 0 if [k] began at the
    head of the round, else 1. *)
Definition behind st j k := In j (ring st) /\ ahead j k (ring st) = false.

Lemma run_other k j e st0 st t w :
  reachable st0 -> In j flows -> j <> k -> run k st0 st t w -> 0 <= e ->
  ((exists r, ring st0 = k :: r) \/ 1 <= e) ->
  w j + d st j <= q j + mx j - 1 + q j * (t + e) /\
  (~ behind st j k -> w j + d st j <= q j + mx j - 1 + q j * (t + e - 1)).
Proof.
  intros Hr Hj Hjk H He Hhead. pose proof (q_pos j) as Hq. pose proof (mx_pos j) as Hm.
  induction H as [st Hk | st0 st st' t w i l n H IH Hs Hk].
  - pose proof (invariant _ Hr) as Hi.
    destruct (in_dec Nat.eq_dec j (ring st)) as [Hin | Hno].
    + pose proof (i_most _ Hi j Hin). pose proof (i_head _ Hi j Hin). split; [nia |].
      intros Hb. destruct Hhead as [[r Hring] | He1]; [| nia].
      exfalso. apply Hb. split; [assumption |]. rewrite Hring. simpl.
      destruct (Nat.eqb_spec k j); [congruence |]. now rewrite Nat.eqb_refl.
    + rewrite (i_idle _ Hi j Hno). split; nia.
  - specialize (IH Hr Hhead). destruct IH as [IH1 IH2].
    destruct (run_active _ _ _ _ _ H) as [_ Hkin].
    pose proof (invariant _ (run_reachable _ _ _ _ _ Hr H)) as Hi. pose proof (i_nodup _ Hi) as Hn.
    inversion Hs as [s0 k0 h Hf Ho Hh | s0 k0 r l0 Hring Hd Hl | s0 k0 r l0 h Hring Hd Hl Hh Hn' Hst
                  | s0 k0 r l0 h Hring Hc Hst]; subst; unfold behind in *; simpl in *.
    + (* an arrival *)
      assert (Hik : i <> k) by (intros ->; contradiction). apply Nat.eqb_neq in Hik. rewrite Hik.
      destruct (Nat.eq_dec j i) as [-> | Hji].
      * rewrite !upd_same. rewrite (i_idle _ Hi i Ho) in IH2.
        assert (w i + 0 <= q i + mx i - 1 + q i * (t + e - 1)) by (apply IH2; tauto).
        split; [nia |]. intros Hb. exfalso. apply Hb. split; [apply in_or_app; right; now left |].
        rewrite ahead_app by assumption. destruct (ahead i k (ring st)) eqn:E; [| reflexivity].
        apply ahead_in in E. contradiction.
      * rewrite !upd_other by assumption. split; [lia |]. intros Hb. rewrite Z.add_0_r. apply IH2. intros [Ha Hc].
        apply Hb. split; [apply in_or_app; now left | now rewrite ahead_app].
    + (* the last packet of a flow *)
      rewrite Hring in *. inversion Hn as [| y r' Hy Hn0]; subst.
      assert (Hik : i <> k) by (intros ->; contradiction).
      destruct (Nat.eqb_spec i k); [contradiction |].
      destruct (Nat.eq_dec j i) as [-> | Hji].
      * rewrite !upd_same. assert (w i + d st i <= q i + mx i - 1 + q i * (t + e - 1)).
        { apply IH2. simpl. rewrite Nat.eqb_refl. intros [_ [=]]. }
        split; [nia |]. intros _. lia.
      * rewrite !upd_other by assumption. split; [lia |]. intros Hb. rewrite Z.add_0_r. apply IH2. simpl.
        destruct (Nat.eqb_spec i j); [congruence |]. destruct (Nat.eqb_spec i k); [contradiction |].
        intros [[? | Ha] Hc]; [congruence | tauto].
    + (* a packet within a turn *)
      rewrite Hring in *. replace (t + (if Nat.eqb i k then 0 else 0)) with t by (destruct (Nat.eqb i k); lia).
      destruct (Nat.eq_dec j i) as [-> | Hji].
      * rewrite !upd_same. split; [lia |]. intros Hb. specialize (IH2 Hb). lia.
      * rewrite !upd_other by assumption. split; assumption.
    + (* the end of a turn *)
      rewrite Hring in *. inversion Hn as [| y r' Hy Hn0]; subst. simpl in *.
      destruct (Nat.eqb_spec i k) as [-> | Hik].
      * rewrite !upd_other by assumption. split; [nia |]. intros Hb.
        destruct (Nat.eqb_spec k j); [congruence |].
        replace (t + 1 + e - 1) with (t + e) by lia. assumption.
      * destruct Hkin as [? | Hkr]; [congruence |]. rewrite ahead_app by assumption.
        destruct (Nat.eq_dec j i) as [-> | Hji].
        -- rewrite !upd_same. rewrite Nat.eqb_refl in IH2.
           assert (w i + d st i <= q i + mx i - 1 + q i * (t + e - 1)) by (apply IH2; intros [_ [=]]).
           split; [nia |]. intros Hb. exfalso. apply Hb. split; [apply in_or_app; right; now left |].
           destruct (ahead i k r) eqn:E; [| reflexivity]. apply ahead_in in E. contradiction.
        -- rewrite !upd_other by assumption. rewrite Z.add_0_r. split; [assumption |].
           intros Hb. apply IH2. destruct (Nat.eqb_spec i j); [congruence |].
           intros [[? | Ha] Hc2]; [congruence |]. apply Hb. split; [apply in_or_app; now left | assumption].
Qed.

Lemma run_other_work k j e st0 st t w :
  reachable st0 -> In j flows -> j <> k -> run k st0 st t w -> 0 <= e ->
  ((exists r, ring st0 = k :: r) \/ 1 <= e) -> w j <= q j * (t + e) + mx j - 1.
Proof.
  intros Hr Hj Hjk H He Hhead. destruct (run_other k j e st0 st t w Hr Hj Hjk H He Hhead) as [H1 H2].
  pose proof (invariant _ (run_reachable _ _ _ _ _ Hr H)) as Hi. destruct (run_active _ _ _ _ _ H) as [_ Hk].
  assert (Hb : behind st j k \/ ~ behind st j k).
  { unfold behind. destruct (in_dec Nat.eq_dec j (ring st)); [| tauto]. destruct (ahead j k (ring st)); [right; intros [_ [=]] | tauto]. }
  destruct Hb as [[Hin Ha] | Hb].
  - destruct (ring st) as [| a r] eqn:Hring; [destruct Hin |].
    assert (q j <= d st j).
    { apply (i_waits _ Hi a r j Hring). destruct Hin as [-> | Hin]; [| assumption].
      simpl in Ha. rewrite Nat.eqb_refl in Ha. discriminate. }
    lia.
  - specialize (H2 Hb). assert (0 <= d st j); [| lia].
    destruct (in_dec Nat.eq_dec j (ring st)) as [Hin | Hno]; [pose proof (i_pos _ Hi j Hin); lia |].
    rewrite (i_idle _ Hi j Hno). lia.
Qed.

(** Where [k] begins in the round, and the work that its turns stand for. *)
Lemma own_turns k st0 st t w :
  reachable st0 -> run k st0 st t w ->
  exists e, 0 <= e /\ ((exists r, ring st0 = k :: r) \/ 1 <= e) /\ (t + e) * q k <= w k + d st k - 1 + (if e =? 0 then 0 else 1).
Proof.
  intros Hr H. pose proof (invariant _ Hr) as Hi. destruct (run_active _ _ _ _ _ H) as [Hk _].
  pose proof (run_own _ _ _ _ _ Hr H) as Hw. pose proof (i_pos _ Hi k Hk).
  destruct (ring st0) as [| a r] eqn:Hring; [destruct Hk |].
  destruct (Nat.eq_dec a k) as [-> | Ha].
  - exists 0. simpl. repeat split; [lia | eauto | lia].
  - exists 1. simpl. destruct Hk as [? | Hk]; [contradiction |].
    pose proof (i_waits _ Hi a r k Hring Hk). repeat split; [lia | right; lia | lia].
Qed.

Definition F := sum q flows.
Definition others k := sum mx flows - mx k.

(** The strict service curve of Tabatabaee and Le Boudec (arXiv 2106.01034, Theorem 1): over any interval in which [k]
    has something to send, the link's work is at most this function of the work of [k]. *)
Theorem service_curve k st0 st t w :
  reachable st0 -> In k flows -> run k st0 st t w ->
  sum w flows <= w k + sum (fun j => q j * ((w k + mx k - 1) / q k + 1) + mx j - 1) flows
                 - (q k * ((w k + mx k - 1) / q k + 1) + mx k - 1).
Proof.
  intros Hr Hf H. pose proof (q_pos k) as Hq. destruct (run_active _ _ _ _ _ H) as [_ Hk].
  pose proof (invariant _ (run_reachable _ _ _ _ _ Hr H)) as Hi.
  pose proof (i_most _ Hi k Hk) as Hd. pose proof (i_head _ Hi k Hk) as Hh.
  destruct (own_turns _ _ _ _ _ Hr H) as (e & He & Hhead & Ht).
  assert (Hte : t + e <= (w k + mx k - 1) / q k + 1).
  { assert (t + e - 1 <= (w k + mx k - 1) / q k); [| lia]. apply Z.div_le_lower_bound; [assumption |].
    destruct (e =? 0); lia. }
  pose proof (sum_others w (fun j => q j * ((w k + mx k - 1) / q k + 1) + mx j - 1) k flows nodup Hf) as Hs.
  assert (sum w flows - w k <= sum (fun j => q j * ((w k + mx k - 1) / q k + 1) + mx j - 1) flows
     - (q k * ((w k + mx k - 1) / q k + 1) + mx k - 1)); [| lia].
  apply Hs. intros j Hj Hjk. pose proof (run_other_work k j e st0 st t w Hr Hj Hjk H He Hhead) as Hw.
  pose proof (q_pos j). nia.
Qed.

Lemma others_turns k w x :
  In k flows -> (forall j, In j flows -> j <> k -> w j <= q j * x + mx j) -> sum w flows - w k <= (F - q k) * x + others k.
Proof.
  intros Hf H. pose proof (sum_others w (fun j => q j * x + mx j) k flows nodup Hf H) as Hs.
  rewrite (sum_add (fun j => q j * x) mx), sum_scale in Hs. unfold F, others. lia.
Qed.

Lemma F_covers k : In k flows -> q k <= F.
Proof. intros H. apply sum_ge_term; [assumption | intros; pose proof (q_pos x); lia]. Qed.

(** B-WFI ([bounds::drr], with Q = 0), in all lengths times F: with phi = q_k / F,
    [phi W - W_k <= phi (F - q_k + others) + (1 - phi) L_k]. For [Head::Known] and [Head::Longest] alike. *)
Theorem b_wfi k st0 st t w :
  reachable st0 -> In k flows -> run k st0 st t w ->
  q k * sum w flows <= F * w k + q k * (F - q k + others k) + (F - q k) * mx k.
Proof.
  intros Hr Hf H. pose proof (q_pos k) as Hq. destruct (run_active _ _ _ _ _ H) as [_ Hk].
  pose proof (invariant _ (run_reachable _ _ _ _ _ Hr H)) as Hi.
  pose proof (i_most _ Hi k Hk) as Hd. pose proof (i_head _ Hi k Hk) as Hh.
  destruct (own_turns _ _ _ _ _ Hr H) as (e & He & Hhead & Ht).
  assert (Hw : sum w flows - w k <= (F - q k) * (t + e) + others k).
  { apply others_turns; [assumption |]. intros j Hj Hjk.
    pose proof (run_other_work k j e st0 st t w Hr Hj Hjk H He Hhead). lia. }
  pose proof (F_covers k Hf).
  assert (Hte : q k * (t + e) <= w k + q k + mx k) by (destruct (e =? 0); lia).
  assert ((F - q k) * (q k * (t + e)) <= (F - q k) * (w k + q k + mx k)) by (apply Z.mul_le_mono_nonneg_l; lia).
  nia.
Qed.

(** T-WFI ([bounds::drr]): from any point at which a packet of [k] waits, with [B] bytes of its flow up to its end, the
    link does at most [B / phi] and [F - q_k + others] until it has left. [hd st k - l] is the excess
    of the announced length: 0 for [Head::Known]. [Child::in_round] adds (1 / phi - 1) L_k for it. *)
Theorem t_wfi k st0 st t w l r :
  reachable st0 -> In k flows -> run k st0 st t w ->
  ring st = k :: r -> hd st k <= d st k -> 0 < l <= hd st k ->
  let B := w k + l in
  q k * (sum w flows + l) <= F * B + q k * (F - q k + others k) + (F - q k) * (hd st k - l).
Proof.
  intros Hr Hf H Hring Hd Hl B. pose proof (q_pos k) as Hq. destruct (run_active _ _ _ _ _ H) as [_ Hk].
  pose proof (invariant _ (run_reachable _ _ _ _ _ Hr H)) as Hi. pose proof (i_most _ Hi k Hk) as Hmost.
  destruct (own_turns _ _ _ _ _ Hr H) as (e & He & Hhead & Ht).
  assert (Hw : sum w flows - w k <= (F - q k) * (t + e) + others k).
  { apply others_turns; [assumption |]. intros j Hj Hjk.
    pose proof (run_other_work k j e st0 st t w Hr Hj Hjk H He Hhead). lia. }
  pose proof (F_covers k Hf). subst B.
  assert (Hte : q k * (t + e) <= w k + l + q k + (hd st k - l)) by (destruct (e =? 0); lia).
  assert ((F - q k) * (q k * (t + e)) <= (F - q k) * (w k + l + q k + (hd st k - l))) by (apply Z.mul_le_mono_nonneg_l; lia).
  nia.
Qed.

End Drr.
