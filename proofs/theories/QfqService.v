(** Service guarantees of QFQ: Lemma 2, Theorem 4, and Theorems 1 and 2 in their corrected form. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Export Qfq.
Import ListNotations.
Open Scope Z_scope.

Section QfqService.
Context {C : config} {ok : well_formed C} {rates : fair C}.
(* For lia. *)
Let v0 : 0 < v := v_pos.
Let u0 : 0 < u := u_pos.
Let W0 : 0 < W := W_pos.
Let L0 : 0 <= L := L_nonneg.
Let down : W * v <= K := clock_down.

Definition eligb st k := act st k && (Rs st k <=? V st).

Lemma eligb_spec st k : In k flows -> eligb st k = true <-> elig st k.
Proof.
  intros Hk. unfold eligb, elig, active. rewrite andb_true_iff, Z.leb_le. tauto.
Qed.

(** min(V, F_b): V where nothing eligible lies above. *)
Definition low st k :=
  fold_right (fun b acc => if eligb st b && (g k <? g b) then Z.min (Rf st b) acc else acc) (fu (V st)) flows.

Lemma low_spec st k :
  low st k <= fu (V st) /\
  (forall b, elig st b -> g k < g b -> low st k <= Rf st b) /\
  (forall y, y <= fu (V st) -> (forall b, elig st b -> g k < g b -> y <= Rf st b) -> y <= low st k).
Proof.
  assert (H : forall l, incl l flows ->
    let x := fold_right (fun b acc => if eligb st b && (g k <? g b) then Z.min (Rf st b) acc else acc) (fu (V st)) l in
    x <= fu (V st) /\ (forall b, In b l -> elig st b -> g k < g b -> x <= Rf st b) /\
    (forall y, y <= fu (V st) -> (forall b, In b l -> elig st b -> g k < g b -> y <= Rf st b) -> y <= x)).
  { induction l as [| b l IH]; intros Hi; simpl.
    - repeat split; [lia | intros b [] | auto].
    - destruct IH as (H1 & H2 & H3); [intros z Hz; apply Hi; now right |].
      assert (Hb : In b flows) by (apply Hi; now left).
      destruct (eligb st b && (g k <? g b)) eqn:E.
      + apply andb_true_iff in E. destruct E as [E1 E2]. apply eligb_spec in E1; [| assumption].
        apply Z.ltb_lt in E2. repeat split.
        * lia.
        * intros z [<- | Hz] He Hg; [lia |]. specialize (H2 z Hz He Hg). lia.
        * intros y Hy Hall. apply Z.min_glb; [apply Hall; auto; now left |].
          apply H3; [assumption |]. intros z Hz. apply Hall. now right.
      + assert (Hno : elig st b -> g k < g b -> False).
        { intros He Hg. apply eligb_spec in He; [| assumption]. rewrite He in E. simpl in E.
          apply Z.ltb_ge in E. lia. }
        repeat split; [assumption | |].
        * intros z [<- | Hz] He Hg; [exfalso; auto | auto].
        * intros y Hy Hall. apply H3; [assumption |]. intros z Hz. apply Hall. now right. }
  destruct (H flows (incl_refl _)) as (H1 & H2 & H3). repeat split.
  - exact H1.
  - intros b Hb. apply H2; [apply Hb | assumption].
  - intros y Hy Hall. apply H3; [assumption |]. intros b _. apply Hall.
Qed.

Lemma low_le_fuV st k : low st k <= fu (V st). Proof. apply low_spec. Qed.
Lemma low_le_V st k : low st k <= V st. Proof. pose proof (low_le_fuV st k). pose proof (fu_le (V st)). lia. Qed.
Lemma low_le st k b : elig st b -> g k < g b -> low st k <= Rf st b. Proof. apply low_spec. Qed.
Lemma low_glb st k y :
  y <= fu (V st) -> (forall b, elig st b -> g k < g b -> y <= Rf st b) -> y <= low st k.
Proof. apply low_spec. Qed.

Lemma fu_mono x y : x <= y -> fu x <= fu y.
Proof. intros H. unfold fu. apply Z.mul_le_mono_nonneg_r; [lia | apply Z.div_le_mono; lia]. Qed.

(** Eq. 29 is a function of the state. *)
Lemma start_is st k s : start st k s -> s = Z.max (S st k) (low st k).
Proof.
  intros [(b & Hb & Hg & Hmin & ->) | [Hno ->]]; f_equal.
  - apply Z.le_antisymm.
    + apply low_glb; [lia |]. intros x Hx Hgx. specialize (Hmin x Hx Hgx). lia.
    + apply Z.min_glb; [apply low_le_fuV | now apply low_le].
  - apply Z.le_antisymm; [| apply low_le_fuV]. apply low_glb; [lia |]. intros b Hb Hg. specialize (Hno b Hb). lia.
Qed.

(** The start of a flow that became backlogged now. The proof for idle flows rests on it. *)
Definition E st k := if act st k then S st k else Z.max (S st k) (low st k).

(** The term of a flow in Lemma 2. As l = phi (F - S), the report's l + phi (V' - F) is phi (V' - S). *)
Definition term st M k :=
  if act st k then (if Rf st k <=? M then w k * (M - S st k) else 0) else w k * Z.max 0 (M - E st k).

Definition Lemma2 st := forall M, V st <= M + L * v + u -> sum (term st M) flows <= W * (M + L * v + u - V st).

Lemma Rf_after_S st k : S st k + sigma k < Rf st k.
Proof. unfold Rf, Rs. pose proof (fl_gt k (S st k)). lia. Qed.

Lemma term_nonneg st M k : 0 <= term st M k.
Proof.
  unfold term. pose proof (w_nonneg k). destruct (act st k); [| nia].
  destruct (Rf st k <=? M) eqn:E; [| lia]. apply Z.leb_le in E. pose proof (Rf_after_S st k). pose proof (sigma_pos k). nia.
Qed.

Lemma all_after st M x :
  (forall k, In k flows -> term st M k <= w k * Z.max 0 (M - x)) -> sum (term st M) flows <= W * Z.max 0 (M - x).
Proof.
  intros H. eapply Z.le_trans; [apply sum_le, H |]. rewrite sum_scale. pose proof weights. nia.
Qed.

Lemma Lemma2_init : Lemma2 init.
Proof.
  intros M HM. simpl in HM. eapply Z.le_trans.
  - apply (all_after init M 0). intros k Hk. unfold term. simpl.
    assert (Hlow : 0 <= low init k).
    { apply low_glb; [change (0 <= fu 0); unfold fu; rewrite Z.div_0_l; lia |]. intros b [[_ Hb] _]. discriminate. }
    assert (0 <= E init k) by (unfold E; simpl; lia). pose proof (w_nonneg k). nia.
  - simpl. nia.
Qed.

Lemma elig_same st st' x :
  S st' x = S st x -> act st' x = act st x -> elig st' x -> active st x /\ Rs st' x = Rs st x /\ Rf st' x = Rf st x.
Proof. intros HS HA [[Hi Ha] _]. unfold Rf, Rs, active. rewrite HS, <- HA. auto. Qed.

(** min(V, F_b) never falls, for any flow. *)
Lemma low_grows st st' : step st st' -> forall x, low st x <= low st' x.
Proof.
  intros Hs x. inversion Hs as [s0 k s Hk Ha Hst | s0 k l more He Hmin Hl Hx0 | s0 z to Hz Hm Hv Hto | s0 to Hno Hto]; subst.
  - set (st' := mk (V st) (upd (S st) k s) (upd (act st) k true)) in *.
    apply low_glb; [simpl; apply low_le_fuV |]. intros b Hb Hg. destruct (Nat.eq_dec b k) as [-> | Hbk].
    + assert (low st x <= low st k).
      { apply low_glb; [apply low_le_fuV |]. intros y Hy Hgy. apply low_le; [assumption | lia]. }
      pose proof (start_is _ _ _ Hst). pose proof (Rf_after_S st' k) as HR. simpl in HR. rewrite upd_same in HR.
      pose proof (sigma_pos k). lia.
    + destruct (elig_same st st' b) as (Hact & HR & ->);
        [simpl; now rewrite upd_other | simpl; now rewrite upd_other | assumption |].
      apply low_le; [| assumption]. destruct Hb as [_ Hb]. rewrite HR in Hb. split; assumption.
  - set (st' := mk (V st + l * v) (upd (S st) k (S st k + l * c k)) (upd (act st) k more)) in *.
    apply low_glb; [eapply Z.le_trans; [apply low_le_fuV | apply fu_mono; simpl; nia] |]. intros b Hb Hg. destruct (Nat.eq_dec b k) as [-> | Hbk].
    + pose proof (low_le st x k He Hg). assert (Rf st k <= Rf st' k); [| lia].
      unfold Rf, Rs. simpl. rewrite upd_same. pose proof (c_pos k).
      assert (fl k (S st k) <= fl k (S st k + l * c k)) by (apply fl_mono; nia). lia.
    + destruct (elig_same st st' b) as (Hact & HR & ->);
        [simpl; now rewrite upd_other | simpl; now rewrite upd_other | assumption |].
      destruct (Z_le_gt_dec (Rs st b) (V st)); [apply low_le; [split; assumption | assumption] |].
      pose proof (low_le_V st x). unfold Rf. pose proof (sigma_pos b). lia.
  - apply low_glb; [eapply Z.le_trans; [apply low_le_fuV | apply fu_mono; simpl; lia] |]. intros b [Hb _] Hg.
    change (Rf (mk to (S st) (act st)) b) with (Rf st b). specialize (Hm b Hb). pose proof (low_le_V st x).
    unfold Rf. pose proof (sigma_pos b). lia.
  - apply low_glb; [eapply Z.le_trans; [apply low_le_fuV | apply fu_mono; simpl; lia] |].
    intros b [Hb _] _. now destruct (Hno b).
Qed.

Lemma term_other st st' M x :
  step st st' -> S st' x = S st x -> act st' x = act st x -> term st' M x <= term st M x.
Proof.
  intros Hs HS HA. unfold term, E, Rf, Rs. rewrite HA, HS. destruct (act st x); [lia |].
  pose proof (low_grows _ _ Hs x). pose proof (w_nonneg x). nia.
Qed.

Lemma Lemma2_step st st' : Lemma2 st -> step st st' -> Lemma2 st'.
Proof.
  intros H2 Hs M HM. pose proof Hs as Hs'.
  inversion Hs' as [s0 k s Hk Ha Hst | s0 k l more He Hmin Hl Hx0 | s0 z to Hz Hm Hv Hto | s0 to Hno Hto]; subst.
  - (* arrival *)
    set (st' := mk (V st) (upd (S st) k s) (upd (act st) k true)) in *.
    change (V st') with (V st) in *. eapply Z.le_trans; [| apply (H2 M HM)]. apply sum_le. intros x Hx.
    destruct (Nat.eq_dec x k) as [-> | Hxk].
    2: { apply term_other; [assumption | simpl; now rewrite upd_other | simpl; now rewrite upd_other]. }
    pose proof (start_is _ _ _ Hst) as ->. unfold term. rewrite Ha. unfold E. rewrite Ha.
    change (act st' k) with (upd (act st) k true k). rewrite upd_same.
    pose proof (w_nonneg k). destruct (Rf st' k <=? M); [| nia].
    change (S st' k) with (upd (S st) k (Z.max (S st k) (low st k)) k). rewrite upd_same. nia.
  - (* service *)
    pose proof (len_slot _ _ Hx0) as Hc. pose proof (mx_L k) as HmxL.
    set (st' := mk (V st + l * v) (upd (S st) k (S st k + l * c k)) (upd (act st) k more)) in *.
    assert (HSk : S st' k = S st k + l * c k) by (simpl; apply upd_same).
    assert (HAk : act st' k = more) by (simpl; apply upd_same).
    change (V st') with (V st + l * v) in *.
    assert (Hlv : 0 < l * v) by nia. pose proof (c_pos k) as Hck. pose proof (w_nonneg k) as Hwk.
    assert (Hup : Rf st k <= Rf st' k).
    { unfold Rf, Rs. rewrite HSk. assert (fl k (S st k) <= fl k (S st k + l * c k)) by (apply fl_mono; nia). lia. }
    destruct (Z_le_gt_dec (Rf st k) M) as [Hle | Hgt].
    + (* case 1 *)
      assert (Hfall : sum (term st' M) flows + w k * (l * c k) <= sum (term st M) flows).
      { apply sum_less with (k := k); [apply nodup | apply He | |].
        - pose proof (Rf_after_S st k). destruct He as [[_ Hact] _].
          assert (Hbefore : term st M k = w k * (M - S st k)).
          { unfold term. rewrite Hact. apply Z.leb_le in Hle. now rewrite Hle. }
          assert (Hafter : term st' M k <= w k * (M - S st k - l * c k)).
          { unfold term, E. rewrite HAk, HSk. destruct more; [| nia]. destruct (Rf st' k <=? M); nia. }
          lia.
        - intros x Hx Hxk. apply term_other; [assumption | simpl; now rewrite upd_other | simpl; now rewrite upd_other]. }
      specialize (H2 M ltac:(lia)). pose proof (cost_up k) as Hcost.
      assert (W * v * l <= w k * c k * l) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
    + (* case 2 *)
      assert (Hall : sum (term st' M) flows <= W * Z.max 0 (M - (V st - u))).
      { apply all_after. intros x Hx. pose proof (w_nonneg x) as Hwx.
        assert (Hlow : Z.min (V st - u) M <= low st' x).
        { apply low_glb; [pose proof (fu_gt (V st + l * v)); simpl; lia |]. intros b Hb Hg. destruct (Nat.eq_dec b k) as [-> | Hbk]; [lia |].
          destruct (elig_same st st' b) as (Hact & HR & ->);
            [simpl; now rewrite upd_other | simpl; now rewrite upd_other | assumption |].
          destruct (Z_le_gt_dec (Rs st b) (V st)) as [Hbe | Hbl].
          - specialize (Hmin b (conj Hact Hbe)). lia.
          - unfold Rf. pose proof (sigma_pos b). lia. }
        unfold term. destruct (act st' x) eqn:Hax; [| unfold E; rewrite Hax; nia].
        destruct (Rf st' x <=? M) eqn:HRM; [| nia]. apply Z.leb_le in HRM.
        destruct (Nat.eq_dec x k) as [-> | Hxk]; [lia |].
        assert (HS : S st' x = S st x) by (simpl; now rewrite upd_other).
        assert (HA : act st' x = act st x) by (simpl; now rewrite upd_other).
        rewrite HS. assert (HRf : Rf st' x = Rf st x) by (unfold Rf, Rs; now rewrite HS).
        destruct (Z_le_gt_dec (Rs st x) (V st)) as [Hxe | Hxl].
        - assert (elig st x) by (split; [split; [assumption | congruence] | assumption]).
          specialize (Hmin x H). lia.
        - unfold Rs in Hxl. pose proof (fl_le x (S st x)). nia. }
      eapply Z.le_trans; [apply Hall |]. nia.
  - (* jump *)
    set (st' := mk to (S st) (act st)) in *. change (V st') with to in *.
    assert (Hall : sum (term st' M) flows <= W * Z.max 0 (M - Rs st z)).
    { apply all_after. intros x Hx. pose proof (w_nonneg x) as Hwx.
      assert (Hlow : Rs st z <= low st' x).
      { apply low_glb; [simpl; rewrite <- (fu_exact (Rs st z)); [apply fu_mono; lia | eapply Z.divide_trans; [apply u_slot | apply Rs_divides]] |]. intros b [Hb _] _. change (Rf st' b) with (Rf st b).
        specialize (Hm b Hb). unfold Rf. pose proof (sigma_pos b). lia. }
      unfold term. change (act st' x) with (act st x). destruct (act st x) eqn:Hax.
      - change (S st' x) with (S st x). specialize (Hm x (conj Hx Hax)). unfold Rs at 2 in Hm.
        pose proof (fl_le x (S st x)). destruct (Rf st' x <=? M); nia.
      - unfold E. change (act st' x) with (act st x). rewrite Hax. nia. }
    eapply Z.le_trans; [apply Hall |]. assert (0 <= L * v) by nia. nia.
  - (* V advances while the link idles *)
    set (st' := mk to (S st) (act st)) in *. change (V st') with to in *.
    assert (Hall : sum (term st' M) flows <= W * Z.max 0 (M - fu to)).
    { apply all_after. intros x Hx. pose proof (w_nonneg x) as Hwx.
      assert (Hlow : fu to <= low st' x) by (apply low_glb; [simpl; lia | intros b [Hb _]; now destruct (Hno b)]).
      unfold term. change (act st' x) with (act st x). destruct (act st x) eqn:Hax; [now destruct (Hno x) |].
      unfold E. change (act st' x) with (act st x). rewrite Hax. nia. }
    eapply Z.le_trans; [apply Hall |]. assert (0 <= L * v) by nia. pose proof (fu_gt to). nia.
Qed.

(** Theorem 4. *)
Definition T4 st := forall q, active st q -> V st <= Rf st q + L * v + u.

Lemma T4_step st st' : Lemma2 st -> T4 st -> step st st' -> T4 st'.
Proof.
  intros H2 H4 Hs q Hq. inversion Hs as [s0 k s Hk Ha Hst | s0 k l more He Hmin Hl Hx0 | s0 z to Hz Hm Hv Hto | s0 to Hno Hto]; subst.
  - set (st' := mk (V st) (upd (S st) k s) (upd (act st) k true)) in *. change (V st') with (V st).
    destruct (Nat.eq_dec q k) as [-> | Hqk].
    + pose proof (Rf_after_S st' k) as HR. simpl in HR. rewrite upd_same in HR. pose proof (sigma_pos k).
      assert (V st - L * v - u <= low st k).
      { apply low_glb; [pose proof (fu_gt (V st)); nia |]. intros b Hb _. specialize (H4 b (proj1 Hb)). lia. }
      pose proof (start_is _ _ _ Hst). lia.
    + assert (HS : S st' q = S st q) by (simpl; now rewrite upd_other).
      assert (HA : act st' q = act st q) by (simpl; now rewrite upd_other).
      unfold Rf, Rs. rewrite HS. apply H4. destruct Hq as [Hi Hact]. split; [assumption | congruence].
  - pose proof (len_slot _ _ Hx0) as Hc. pose proof (mx_L k) as HmxL.
    set (st' := mk (V st + l * v) (upd (S st) k (S st k + l * c k)) (upd (act st) k more)) in *.
    change (V st') with (V st + l * v). pose proof (c_pos k) as Hck. pose proof (w_nonneg k) as Hwk.
    assert (Hserved : forall M, V st <= M + L * v + u -> Rf st k <= M -> V st + l * v <= M + L * v + u).
    { intros M HM HR. specialize (H2 M HM).
      assert (Ht : w k * (l * c k) <= sum (term st M) flows).
      { eapply Z.le_trans; [| apply sum_ge_term with (k := k)]; [| apply He | intros; apply term_nonneg].
        unfold term. destruct He as [[_ ->] _]. pose proof HR as HR'. apply Z.leb_le in HR'. rewrite HR'.
        pose proof (Rf_after_S st k). nia. }
      pose proof (cost_up k) as Hcost. assert (W * v * l <= w k * c k * l) by (apply Z.mul_le_mono_nonneg_r; lia).
      assert (W * (l * v) <= W * (M + L * v + u - V st)) by lia.
      assert (l * v <= M + L * v + u - V st) by nia. lia. }
    destruct (Nat.eq_dec q k) as [-> | Hqk].
    + assert (Rf st k <= Rf st' k).
      { unfold Rf, Rs. simpl. rewrite upd_same. assert (fl k (S st k) <= fl k (S st k + l * c k)) by (apply fl_mono; nia). lia. }
      specialize (Hserved (Rf st k) (H4 k (proj1 He)) ltac:(lia)). lia.
    + assert (HS : S st' q = S st q) by (simpl; now rewrite upd_other).
      assert (HA : act st' q = act st q) by (simpl; now rewrite upd_other).
      assert (Hact : active st q) by (destruct Hq as [Hi Hact]; split; [assumption | congruence]).
      unfold Rf, Rs. rewrite HS. fold (Rs st q). fold (Rf st q).
      destruct (Z_le_gt_dec (Rs st q) (V st)) as [Hqe | Hql].
      * apply Hserved; [now apply H4 |]. apply Hmin. split; assumption.
      * unfold Rf. pose proof (sigma_pos q). assert (l * v <= L * v) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
  - change (Rf (mk to (S st) (act st)) q) with (Rf st q). specialize (Hm q Hq). simpl. unfold Rf.
    pose proof (sigma_pos q). pose proof u_pos.
    assert (0 <= L * v) by nia. lia.
  - now destruct (Hno q).
Qed.

Theorem lemma2 st : reachable st -> Lemma2 st.
Proof. induction 1; [apply Lemma2_init | eapply Lemma2_step; eassumption]. Qed.

Theorem theorem4 st : reachable st -> T4 st.
Proof.
  induction 1 as [| st st' Hr IH Hs]; [intros q [_ Hq]; discriminate |].
  eapply T4_step; [apply lemma2 | |]; eassumption.
Qed.

(** The same, less the length of the packet at the head of the queue. *)
Theorem theorem4_strong st q l :
  reachable st -> active st q -> 0 <= l -> l <= mx q -> V st <= Rf st q + (L - l) * v + u.
Proof.
  intros Hr Hq Hl Hm. pose proof (theorem4 _ Hr q Hq) as H4. pose proof (lemma2 _ Hr (Rf st q) H4) as H2.
  pose proof (len_slot _ _ Hm) as Hc. pose proof (w_nonneg q) as Hw.
  assert (Ht : w q * (l * c q) <= sum (term st (Rf st q)) flows).
  { eapply Z.le_trans; [| apply sum_ge_term with (k := q)]; [| apply Hq | intros; apply term_nonneg].
    unfold term. destruct Hq as [_ ->]. rewrite Z.leb_refl. pose proof (Rf_after_S st q). nia. }
  pose proof (cost_up q) as Hcost. assert (W * v * l <= w q * c q * l) by (apply Z.mul_le_mono_nonneg_r; lia).
  assert (W * (l * v) <= W * (Rf st q + L * v + u - V st)) by lia.
  assert (l * v <= Rf st q + L * v + u - V st) by nia. lia.
Qed.

(** S - V <= sigma + (1/phi - 1) L_k. Theorems 1 and 2 of the report omit this term. *)
Definition Ahead st := forall k, S st k < V st + sigma k + mx k * (c k - v).

Theorem ahead st : reachable st -> Ahead st.
Proof.
  induction 1 as [| st st' Hr IH Hs]; intros x; pose proof (mx_nonneg x) as Hmx; pose proof (c_over_v x) as Hcv;
    pose proof (sigma_pos x) as Hsx.
  - simpl. nia.
  - specialize (IH x).
    inversion Hs as [s0 k s Hk Ha Hst | s0 k l more He Hmin Hl Hx0 | s0 z to Hz Hm Hv Hto | s0 to Hno Hto]; subst; simpl.
    + destruct (Nat.eq_dec x k) as [-> | Hxk]; [| now rewrite upd_other]. rewrite upd_same.
      destruct (start_bounds _ _ _ Hst) as [_ [H | H]]; nia.
    + assert (0 < l * v) by nia. destruct (Nat.eq_dec x k) as [-> | Hxk]; [| rewrite upd_other by assumption; lia].
      rewrite upd_same. destruct He as [_ He]. unfold Rs in He. pose proof (fl_gt k (S st k)).
      assert (l * (c k - v) <= mx k * (c k - v)) by (apply Z.mul_le_mono_nonneg_r; lia). lia.
    + lia.
    + lia.
Qed.

(** A run in which flow [k] is backlogged throughout, with the work of the link and its work for [k]. *)
Inductive busy k : state -> state -> Z -> Z -> Prop :=
| b_refl st : active st k -> busy k st st 0 0
| b_step st st1 st2 work wk l lk :
    busy k st st1 work wk -> step st1 st2 -> active st2 k ->
    V st1 + l * v <= V st2 -> S st2 k = S st1 k + lk * c k ->
    busy k st st2 (work + l) (wk + lk).

Lemma busy_adds k st st' work wk :
  busy k st st' work wk -> V st + work * v <= V st' /\ S st' k = S st k + wk * c k.
Proof. induction 1 as [st H | st st1 st2 work wk l lk H IH Hs Ha Hv HS]; [lia |]. destruct IH. nia. Qed.

Lemma busy_active k st st' work wk : busy k st st' work wk -> active st' k.
Proof. destruct 1; assumption. Qed.

Lemma busy_reachable k st st' work wk : reachable st -> busy k st st' work wk -> reachable st'.
Proof.
  intros Hr H. induction H as [st H | st st1 st2 work wk l lk H IH Hs Ha Hv HS]; [assumption |].
  eapply r_step; [apply IH; assumption | eassumption].
Qed.

Lemma busy_trans k st st1 st2 a b a' b' :
  busy k st st1 a b -> busy k st1 st2 a' b' -> busy k st st2 (a + a') (b + b').
Proof.
  intros H H'. induction H' as [st1 H1 | st1 st2 st3 work wk l lk H1 IH Hs Ha Hv HS]; [now rewrite !Z.add_0_r |].
  rewrite !Z.add_assoc. eapply b_step; eauto.
Qed.

(** Every step of a run in which [k] stays backlogged extends [busy]. *)
Lemma busy_of_step k st st' :
  active st k -> step st st' -> active st' k ->
  exists l lk, V st + l * v <= V st' /\ S st' k = S st k + lk * c k /\
    (l = 0 /\ lk = 0 \/ exists j more, lk = (if Nat.eqb j k then l else 0) /\
       st' = mk (V st + l * v) (upd (S st) j (S st j + l * c j)) (upd (act st) j more)).
Proof.
  intros Hk Hs Hk'. inversion Hs as [s0 j s Hj Ha Hst | s0 j l more He Hmin Hl Hx0 | s0 z to Hz Hm Hv Hto | s0 to Hno Hto]; subst.
  - exists 0, 0. simpl. assert (k <> j) by (intros ->; destruct Hk; congruence). rewrite upd_other by assumption.
    repeat split; [lia | lia |]. now left.
  - exists l, (if Nat.eqb j k then l else 0). simpl. repeat split; [lia | |].
    + destruct (Nat.eqb_spec j k) as [-> | Hjk]; [now rewrite upd_same | rewrite upd_other by congruence; lia].
    + right. exists j, more. auto.
  - exists 0, 0. simpl. repeat split; [lia | lia | now left].
  - now destruct (Hno k).
Qed.

(** The corrected Theorems 1 and 2, in units of virtual time: while [k] is backlogged, with a packet of length [l] at
    its head at the end, the work of the link exceeds the work for [k] divided by its share by less than
    3 sigma + (1/phi - 1) L_k + L - l. *)
Theorem work_over_share k st st' work wk l :
  reachable st -> busy k st st' work wk -> 0 <= l -> l <= mx k ->
  work * v < wk * c k + 3 * sigma k + mx k * (c k - v) + (L - l) * v + u.
Proof.
  intros Hr Hb Hl Hm. pose proof (ahead _ Hr k) as Ha. destruct (busy_adds _ _ _ _ _ Hb) as [HV HS].
  pose proof (theorem4_strong _ _ _ (busy_reachable _ _ _ _ _ Hr Hb) (busy_active _ _ _ _ _ Hb) Hl Hm) as H4.
  unfold Rf, Rs in H4. pose proof (fl_le k (S st' k)). lia.
Qed.

(** An idle flow's last F never lies after the slot that follows V's. A cap at the end of that slot, as in the code's
    [latest_start], therefore changes nothing. A cap at V + sigma - 1 is too low: S then falls when the flow returns,
    and [Lemma2_step] fails for arrivals. *)
Theorem cap_never_binds st k : reachable st -> S st k < fl k (V st) + 2 * sigma k.
Proof.
  intros Hr. destruct (invariant _ Hr) as [H3 _]. specialize (H3 k).
  assert (Rs st k <= fl k (V st) + sigma k).
  { apply gap_le with (sigma k); [apply sigma_pos | apply Rs_divides | |].
    - apply Z.divide_add_r; [apply fl_divides | apply Z.divide_refl].
    - pose proof (fl_gt k (V st)). lia. }
  unfold Rs in H. pose proof (fl_gt k (S st k)). lia.
Qed.

(** Work conservation: if flows are active and none is eligible, V jumps. *)
Theorem work_conserving st : (exists x, active st x) -> (exists x, elig st x) \/ exists st', step st st'.
Proof.
  intros (x & Hx).
  destruct (least (fun y => active st y) (Rs st) flows) as [(m & Hm & Hma & Hmin) | Hno].
  { intros y. unfold active. destruct (in_dec Nat.eq_dec y flows); [| right; tauto].
    destruct (bool_dec (act st y) true); [left; tauto | right; tauto]. }
  2: { exfalso. eapply Hno; [apply Hx | assumption]. }
  destruct (Z_le_gt_dec (Rs st m) (V st)) as [Hle | Hgt].
  - left. exists m. split; assumption.
  - right. eexists. eapply jump with (a := m) (to := Rs st m); [assumption | | lia | lia]. intros y Hy. apply Hmin; [apply Hy | assumption].
Qed.

End QfqService.
