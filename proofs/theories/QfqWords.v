(** QFQ as the code stores it: 64 buckets a group, timestamps of 64 bits that wrap, sets of groups as words of bits. *)
From Coq Require Import ZArith List Lia Bool.
From Fairlane Require Import QfqService QfqSets.
Import ListNotations.
Open Scope Z_scope.

(** * Timestamps that wrap *)

(** The signed difference of two words of [n] bits. *)
Definition signed n x := (x + 2 ^ (n - 1)) mod 2 ^ n - 2 ^ (n - 1).
Definition distance n x y := signed n (x mod 2 ^ n - y mod 2 ^ n).

Lemma distance_exact n x y : 0 < n -> - 2 ^ (n - 1) <= x - y < 2 ^ (n - 1) -> distance n x y = x - y.
Proof.
  intros Hn H. unfold distance, signed.
  assert (Hp : 2 ^ n = 2 * 2 ^ (n - 1)) by (rewrite <- Z.pow_succ_r by lia; f_equal; lia).
  rewrite <- Zplus_mod_idemp_l, <- Zminus_mod, Zplus_mod_idemp_l, Z.mod_small; lia.
Qed.

(** * Words as sets of groups *)

Definition in_word n x := 0 <= x < 2 ^ n.

Lemma above_word n x i : in_word n x -> n <= i -> Z.testbit x i = false.
Proof.
  intros [H0 H] Hi. destruct (Z.eq_dec x 0) as [-> | Hx]; [apply Z.testbit_0_l |].
  apply Z.bits_above_log2; [assumption |]. destruct (Z.lt_ge_cases n 0).
  - rewrite Z.pow_neg_r in H by assumption. lia.
  - assert (Z.log2 x < n) by (apply Z.log2_lt_pow2; lia). lia.
Qed.

(** Bits from [i] upwards, as [from] in the code, and trailing zeros. *)
Definition from n i := Z.shiftl (Z.ones (n - i)) i.

Lemma from_spec n i j : 0 <= i <= n -> 0 <= j -> Z.testbit (from n i) j = ((i <=? j) && (j <? n)).
Proof.
  intros Hi Hj. unfold from. rewrite Z.shiftl_spec by assumption. destruct (Z.leb_spec i j); simpl.
  - rewrite Z.testbit_ones by lia. destruct (Z.ltb_spec j n); destruct (Z.leb_spec 0 (j - i)); destruct (Z.ltb_spec (j - i) (n - i));
      simpl; try reflexivity; lia.
  - apply Z.testbit_neg_r. lia.
Qed.

(** The position of the lowest bit. *)
Definition lowest_bit x := Z.log2 (Z.land x (- x)).

Lemma lowest_bit_spec x : x <> 0 -> 0 <= x ->
  0 <= lowest_bit x /\ Z.testbit x (lowest_bit x) = true /\ forall j, 0 <= j < lowest_bit x -> Z.testbit x j = false.
Proof.
  intros Hx0 Hx. unfold lowest_bit.
  assert (H : forall n : nat, forall x, 0 < x < 2 ^ Z.of_nat n -> exists i, 0 <= i /\ Z.land x (- x) = 2 ^ i /\
    Z.testbit x i = true /\ forall j, 0 <= j < i -> Z.testbit x j = false).
  { clear. induction n as [| n IH]; intros x Hx; [simpl in Hx; lia |].
    destruct (Z.eq_dec (x mod 2) 1) as [Hodd | Heven].
    - exists 0. repeat split; [lia | | | lia].
      + assert (Hdiv : x = 2 * (x / 2) + 1) by (pose proof (Z.div_mod x 2); lia).
        apply Z.bits_inj'. intros j Hj. rewrite Z.land_spec, Z.pow_0_r.
        destruct (Z.eq_dec j 0) as [-> | Hj0].
        * rewrite !Z.bit0_odd, Z.odd_opp. change (Z.odd 1) with true. rewrite Hdiv, Z.odd_add, Z.odd_mul. reflexivity.
        * replace (- x) with (Z.lnot (x - 1)) by (unfold Z.lnot; lia). rewrite Z.lnot_spec by lia.
          replace j with (Z.succ (j - 1)) by lia.
          replace (x - 1) with (2 * (x / 2)) by lia. rewrite Hdiv at 1.
          rewrite Z.testbit_odd_succ, Z.testbit_even_succ by lia.
          change 1 with (2 * 0 + 1). rewrite Z.testbit_odd_succ by lia. rewrite Z.testbit_0_l. apply andb_negb_r.
      + rewrite Z.bit0_odd. rewrite Zodd_mod. now apply Zeq_is_eq_bool.
    - assert (Hm : x mod 2 = 0) by (pose proof (Z.mod_pos_bound x 2); lia).
      assert (Hdiv : x = 2 * (x / 2)) by (pose proof (Z.div_mod x 2); lia).
      rewrite Nat2Z.inj_succ, Z.pow_succ_r in Hx by lia.
      destruct (IH (x / 2) ltac:(lia)) as (i & Hi & Hland & Hbit & Hlow). exists (i + 1). repeat split; [lia | | |].
      + rewrite Hdiv. replace (- (2 * (x / 2))) with (2 * - (x / 2)) by lia.
        rewrite !(Z.mul_comm 2), <- !Z.shiftl_mul_pow2 with (n := 1) by lia.
        rewrite <- Z.shiftl_land, Hland, Z.shiftl_mul_pow2, Z.pow_add_r by lia. reflexivity.
      + rewrite Hdiv, Z.add_1_r, Z.testbit_even_succ by lia. exact Hbit.
      + intros j Hj. rewrite Hdiv. destruct (Z.eq_dec j 0) as [-> | Hj0].
        * now rewrite Z.testbit_even_0.
        * replace j with (Z.succ (j - 1)) by lia. rewrite Z.testbit_even_succ by lia. apply Hlow. lia. }
  destruct (H (Z.to_nat (Z.log2 x + 1)) x) as (i & Hi & Hland & Hbit & Hlow).
  { rewrite Z2Nat.id by (pose proof (Z.log2_nonneg x); lia). pose proof (Z.log2_spec x ltac:(lia)) as Hl. rewrite <- Z.add_1_r in Hl. lia. }
  rewrite Hland, Z.log2_pow2 by assumption. auto.
Qed.

(** A word turned right by [r] bits. *)
Definition turned n x r := Z.lor (Z.shiftr x r) (Z.land (Z.shiftl x (n - r)) (Z.ones n)).

Lemma turned_spec n x r j : in_word n x -> 0 <= r < n -> 0 <= j < n ->
  Z.testbit (turned n x r) j = Z.testbit x ((j + r) mod n).
Proof.
  intros Hx Hr Hj. unfold turned. rewrite Z.lor_spec, Z.land_spec, Z.shiftr_spec, Z.shiftl_spec by lia.
  rewrite Z.testbit_ones_nonneg by lia. replace (j <? n) with true by (symmetry; apply Z.ltb_lt; lia). rewrite andb_true_r.
  destruct (Z.lt_ge_cases (j + r) n) as [Hlt | Hge].
  - rewrite Z.mod_small by lia. rewrite (Z.testbit_neg_r x (j - (n - r))) by lia. apply orb_false_r.
  - rewrite (above_word n x (j + r)) by (assumption || lia). simpl. f_equal.
    replace (j + r) with (j - (n - r) + 1 * n) by lia. rewrite Z.mod_add by lia. rewrite Z.mod_small; lia.
Qed.

Section QfqWords.
Context {C : config} {ok : well_formed C} {rates : fair C}.
(* For lia. *)
Let u0 : 0 < u := u_pos.
Let v0 : 0 < v := v_pos.
Let L0 : 0 <= L := L_nonneg.

(** * Buckets *)

Definition slot_of st k := Rs st k / sigma k.

Lemma slot_start st k : slot_of st k * sigma k = Rs st k.
Proof. unfold slot_of. destruct (Rs_divides st k) as [z Hz]. pose proof (sigma_pos k). rewrite Hz, Z.div_mul; lia. Qed.

(** Theorem 5, with the finest group that the code uses: its slot is at least a 32nd of L / (sum of weights), which is
    rounded to a unit. All flows of a group start within 36 slots. *)
Theorem theorem5 st q x :
  reachable st -> active st q -> g x = g q -> L * v + u <= 33 * sigma q -> slot_of st x - slot_of st q < 36.
Proof.
  intros Hr Hq Hg HL. pose proof (theorem4 _ Hr q Hq) as H4. destruct (invariant _ Hr) as [H3 _]. specialize (H3 x).
  assert (Hs : sigma x = sigma q) by (unfold sigma; now rewrite Hg).
  pose proof (slot_start st x) as Hx. pose proof (slot_start st q) as Hsq. rewrite Hs in *. unfold Rf in H4.
  pose proof (sigma_pos q). nia.
Qed.

(** [skip_first]: the group's first slot is as far from [f] as the lowest bit of the word of buckets, turned. *)
Theorem skip_first_is_exact st i f word :
  in_word 64 word ->
  (forall b, 0 <= b < 64 -> Z.testbit word b = true <-> exists k, active st k /\ g k = i /\ slot_of st k mod 64 = b) ->
  (forall k, active st k -> g k = i -> f <= slot_of st k < f + 64) ->
  (exists k, active st k /\ g k = i) ->
  let first := f + lowest_bit (turned 64 word (f mod 64)) in
  (exists k, active st k /\ g k = i /\ slot_of st k = first) /\
  forall k, active st k -> g k = i -> first <= slot_of st k.
Proof.
  intros Hw Hbits Hnear (k0 & Ha0 & Hg0) first.
  pose proof (Z.mod_pos_bound f 64 ltac:(lia)) as Hf.
  assert (Hturn : forall j, 0 <= j < 64 -> Z.testbit (turned 64 word (f mod 64)) j = Z.testbit word ((f + j) mod 64)).
  { intros j Hj. rewrite turned_spec by assumption. f_equal. rewrite Zplus_mod_idemp_r. f_equal. lia. }
  assert (Hone : forall k, active st k -> g k = i ->
    0 <= slot_of st k - f < 64 /\ Z.testbit (turned 64 word (f mod 64)) (slot_of st k - f) = true).
  { intros k Ha Hg. pose proof (Hnear k Ha Hg). split; [lia |]. rewrite Hturn by lia. apply Hbits.
    - apply Z.mod_pos_bound. lia.
    - exists k. repeat split; try apply Ha; auto. f_equal. lia. }
  assert (Hpos : 0 <= turned 64 word (f mod 64)).
  { unfold turned. apply Z.lor_nonneg. split; [apply Z.shiftr_nonneg, Hw |]. apply Z.land_nonneg. right. discriminate. }
  destruct (Hone k0 Ha0 Hg0) as [Hk0 Hb0].
  destruct (lowest_bit_spec (turned 64 word (f mod 64))) as (H0 & Hbit & Hlow); [| assumption |].
  { intros E. rewrite E, Z.testbit_0_l in Hb0. discriminate. }
  set (j := lowest_bit _) in *.
  assert (Hj : j < 64).
  { destruct (Z.lt_ge_cases j 64); [assumption |]. rewrite Hlow in Hb0 by lia. discriminate. }
  split.
  - rewrite Hturn in Hbit by lia. apply Hbits in Hbit; [| apply Z.mod_pos_bound; lia].
    destruct Hbit as (k & Ha & Hg & Hm). exists k. repeat split; try apply Ha; auto. unfold first. fold j.
    pose proof (Hnear k Ha Hg). pose proof (Z.div_mod (slot_of st k) 64). pose proof (Z.div_mod (f + j) 64). lia.
  - intros k Ha Hg. destruct (Hone k Ha Hg) as [Hk Hb]. unfold first. fold j.
    destruct (Z.lt_ge_cases (slot_of st k - f) j); [rewrite Hlow in Hb by lia; discriminate | lia].
Qed.

(** * The range of timestamps *)

(** V, and the rounded starts and finishes of backlogged flows, lie this far apart at most. *)
Theorem stamps_are_near st k :
  reachable st -> active st k ->
  V st - (2 * sigma k + L * v + u) <= Rs st k < V st + sigma k /\ Rf st k = Rs st k + 2 * sigma k.
Proof.
  intros Hr Hk. pose proof (theorem4 _ Hr k Hk) as H4. destruct (invariant _ Hr) as [H3 _]. specialize (H3 k).
  unfold Rf in *. lia.
Qed.

(** So signed differences of words of [n] bits compare them exactly, in units of timestamps. *)
Theorem comparisons_are_exact n st a b :
  0 < n -> reachable st -> active st a -> active st b ->
  3 * sigma a + 3 * sigma b + L * v + 2 * u <= 2 ^ (n - 1) * u ->
  distance n (Rs st a / u) (fu (V st) / u) = Rs st a / u - V st / u /\
  distance n (Rf st a / u) (Rf st b / u) = Rf st a / u - Rf st b / u.
Proof.
  intros Hn Hr Ha Hb Hspan.
  pose proof (stamps_are_near st a Hr Ha) as [H1 H2]. pose proof (stamps_are_near st b Hr Hb) as [H3 H4].
  assert (Hfu : fu (V st) / u = V st / u) by (unfold fu; rewrite Z.div_mul; lia). rewrite Hfu.
  pose proof (sigma_pos a). pose proof (sigma_pos b).
  assert (Hd : forall x, x / u * u <= x < x / u * u + u).
  { intros x. pose proof (fu_le x). pose proof (fu_gt x). unfold fu in *. lia. }
  pose proof (Hd (Rs st a)). pose proof (Hd (Rf st a)). pose proof (Hd (Rf st b)). pose proof (Hd (V st)).
  assert (0 <= L * v) by nia.
  split; apply distance_exact; nia.
Qed.

(** A flow that leaves, served late, has its last F this far before V at most. While V is less than half a turn minus
    this after the moment, F compares exactly ([VirtualClock::quarters_since]). *)
Theorem finish_is_near st st' k l :
  reachable st -> elig st k -> 0 < l ->
  st' = mk (V st + l * v) (upd (S st) k (S st k + l * c k)) (upd (act st) k false) ->
  V st' - (2 * sigma k + L * v + u) <= S st' k.
Proof.
  intros Hr [Hk _] Hl ->. simpl. rewrite upd_same. pose proof (theorem4 _ Hr k Hk) as H4.
  unfold Rf, Rs in H4. pose proof (fl_le k (S st k)). pose proof (c_over_v k). nia.
Qed.

(** * Sets of groups *)

Variable lu : Z.
Hypothesis u_is : u = 2 ^ lu.
Hypothesis lu_nonneg : 0 <= lu.

(** The bit of a flow's group: slots are counted in timestamps there. No flow has bit 0. *)
Definition bit k := g k - lu.
Hypothesis bits : forall k, In k flows -> 1 <= bit k < 64.

Record sets := { er : Z; ir : Z; eb : Z; ib : Z }.

Definition heads_group st i k := head st k /\ bit k = i.

Definition represent st s := forall i, 0 <= i < 64 ->
  (Z.testbit (er s) i = true <-> exists k, heads_group st i k /\ Rs st k <= V st /\ ~ blocked st k) /\
  (Z.testbit (ir s) i = true <-> exists k, heads_group st i k /\ V st < Rs st k /\ ~ blocked st k) /\
  (Z.testbit (eb s) i = true <-> exists k, heads_group st i k /\ Rs st k <= V st /\ blocked st k) /\
  (Z.testbit (ib s) i = true <-> exists k, heads_group st i k /\ V st < Rs st k /\ blocked st k).

(** [make_eligible] in the code, with V in units before and after. *)
Definition reached before now := Z.ones (Z.log2 (Z.lor (Z.lxor before now) 1) + 1).

Definition make_eligible before now s :=
  let r := reached before now in
  {| er := Z.lor (er s) (Z.land (ir s) r); ir := Z.ldiff (ir s) r;
     eb := Z.lor (eb s) (Z.land (ib s) r); ib := Z.ldiff (ib s) r |}.

Lemma reached_spec a b i : 1 <= i -> 0 <= a <= b ->
  Z.testbit (reached (a / u) (b / u)) i = true <-> a <> b /\ i + lu <= Z.log2 (Z.lxor a b).
Proof.
  intros Hi Hab. unfold reached. rewrite u_is, <- !Z.shiftr_div_pow2, <- Z.shiftr_lxor by assumption.
  assert (Hx : 0 <= Z.lxor a b) by (apply Z.lxor_nonneg; lia). set (d := Z.lxor a b) in *.
  assert (Hs : 0 <= Z.shiftr d lu) by (apply Z.shiftr_nonneg; assumption).
  rewrite Z.testbit_ones_nonneg by (pose proof (Z.log2_nonneg (Z.lor (Z.shiftr d lu) 1)); lia).
  rewrite Z.ltb_lt, Z.log2_lor by lia. change (Z.log2 1) with 0.
  assert (Hne : a <> b <-> d <> 0).
  { split; intros H E; apply H; [now apply Z.lxor_eq | subst b; apply Z.lxor_nilpotent]. }
  destruct (Z.eq_dec d 0) as [E | E].
  - rewrite E, Z.shiftr_0_l. change (Z.log2 0) with 0. split; [lia | intros [H _]; tauto].
  - rewrite Z.log2_shiftr by lia. pose proof (Z.log2_nonneg d). split; [intros H'; split; [tauto | lia] | lia].
Qed.

Theorem make_eligible_words st s to :
  reachable st -> represent st s -> 0 <= V st <= to ->
  represent (mk to (S st) (act st)) (make_eligible (V st / u) (to / u) s).
Proof.
  intros Hr Hs Hto i Hi. destruct (Hs i Hi) as (Her & Hir & Heb & Hib).
  set (st' := mk to (S st) (act st)).
  assert (Hblock : forall k, blocked st' k <-> blocked st k).
  { intros k. split; intros (b & Hb & Hg & Hf); exists b; split; auto.
    - destruct Hb as [Hb _]. split; [exact Hb |]. apply Z.nlt_ge. intros Hlate.
      pose proof (newly_eligible_blocks_none st k b Hr Hlate Hg) as Hn. change (Rf st b < Rf st k) in Hf. lia.
    - destruct Hb as [Hb Hle]. split; [exact Hb |]. change (Rs st b <= to). lia. }
  assert (Hreach : forall k, heads_group st i k -> V st < Rs st k ->
    Z.testbit (reached (V st / u) (to / u)) i = true <-> Rs st k <= to).
  { intros k [[[Hin Hact] _] <-] Hlate. pose proof (bits k Hin). rewrite reached_spec by lia.
    rewrite make_eligible_is_exact by assumption. unfold bit. replace (g k - lu + lu) with (g k) by lia. reflexivity. }
  assert (Hdec : forall k, V st < Rs st k \/ Rs st k <= V st) by (intros k; lia).
  unfold make_eligible; simpl. rewrite !Z.lor_spec, !Z.land_spec, !Z.ldiff_spec.
  rewrite !orb_true_iff, !andb_true_iff, !negb_true_iff, Her, Hir, Heb, Hib.
  assert (Hnot : forall k, heads_group st i k -> V st < Rs st k ->
    Z.testbit (reached (V st / u) (to / u)) i = false <-> to < Rs st k).
  { intros k Hk Hlate. specialize (Hreach k Hk Hlate). rewrite <- not_true_iff_false, Hreach. lia. }
  repeat split.
  - intros [(k & Hk & Hle & Hb) | [(k & Hk & Hlate & Hb) Ht]]; exists k; (split; [exact Hk |]); rewrite Hblock; split; auto;
      change (Rs st k <= to); [lia | now apply (Hreach k Hk Hlate)].
  - intros (k & Hk & Hle & Hb). rewrite Hblock in Hb. change (heads_group st i k) in Hk. change (Rs st k <= to) in Hle.
    destruct (Hdec k) as [Hlate | Hnow]; [right; split; [eauto 6 | now apply (Hreach k Hk Hlate)] | left; eauto 6].
  - intros [(k & Hk & Hlate & Hb) Ht]. exists k. split; [exact Hk |]. rewrite Hblock. split; auto.
    change (to < Rs st k). now apply (Hnot k Hk Hlate).
  - destruct H as (k & Hk & Hle & Hb). rewrite Hblock in Hb. change (heads_group st i k) in Hk. change (to < Rs st k) in Hle.
    exists k. repeat split; try apply Hk; auto. lia.
  - destruct H as (k & Hk & Hle & Hb). change (heads_group st i k) in Hk. change (to < Rs st k) in Hle.
    apply (Hnot k Hk ltac:(lia)). assumption.
  - intros [(k & Hk & Hle & Hb) | [(k & Hk & Hlate & Hb) Ht]]; exists k; (split; [exact Hk |]); rewrite Hblock; split; auto;
      change (Rs st k <= to); [lia | now apply (Hreach k Hk Hlate)].
  - intros (k & Hk & Hle & Hb). rewrite Hblock in Hb. change (heads_group st i k) in Hk. change (Rs st k <= to) in Hle.
    destruct (Hdec k) as [Hlate | Hnow]; [right; split; [eauto 6 | now apply (Hreach k Hk Hlate)] | left; eauto 6].
  - intros [(k & Hk & Hlate & Hb) Ht]. exists k. split; [exact Hk |]. rewrite Hblock. split; auto.
    change (to < Rs st k). now apply (Hnot k Hk Hlate).
  - destruct H as (k & Hk & Hle & Hb). rewrite Hblock in Hb. change (heads_group st i k) in Hk. change (to < Rs st k) in Hle.
    exists k. repeat split; try apply Hk; auto. lia.
  - destruct H as (k & Hk & Hle & Hb). change (heads_group st i k) in Hk. change (to < Rs st k) in Hle.
    apply (Hnot k Hk ltac:(lia)). assumption.
Qed.

(** The head of a group. *)
Lemma head_exists st y : active st y -> exists h, head st h /\ g h = g y /\ Rs st h <= Rs st y.
Proof.
  intros Hy. destruct (least (fun x => active st x /\ g x = g y) (Rs st) flows) as [(h & _ & [Ha Hg] & Hmin) | Hno].
  { intros x. unfold active. destruct (in_dec Nat.eq_dec x flows); [| right; tauto].
    destruct (bool_dec (act st x) true); [| right; tauto]. destruct (Z.eq_dec (g x) (g y)); [left | right]; tauto. }
  - exists h. split; [split; [exact Ha |] | split; [exact Hg |]].
    + intros x Hx Hgx. apply Hmin; [apply Hx | split; [exact Hx | lia]].
    + apply Hmin; [apply Hy | split; [exact Hy | reflexivity]].
  - exfalso. apply (Hno y (proj1 Hy)). auto.
Qed.

Lemma not_blocked_is_ready st k : ~ blocked st k <-> ready st k.
Proof.
  split; [intros H b Hb Hg; apply Z.nlt_ge; intros Hlt; apply H; exists b; auto |].
  intros H (b & Hb & Hg & Hf). specialize (H b Hb Hg). lia.
Qed.

(** Some flow that blocks is itself ready. *)
Lemma blocked_by_ready st k : blocked st k -> exists z, elig st z /\ ready st z /\ g k < g z.
Proof.
  intros (b & Hb & Hgb & _).
  destruct (least (fun y => elig st y /\ g k < g y) (Rf st) flows) as [(m & Hm & [Hme Hmg] & Hmin) | Hno].
  { intros y. destruct (elig_dec st y); [| right; tauto]. destruct (Z_lt_dec (g k) (g y)); [left | right]; tauto. }
  2: { exfalso. apply (Hno b (proj1 (proj1 Hb))). auto. }
  destruct (least (fun y => elig st y /\ Rf st y = Rf st m) (fun y => - g y) flows) as [(z & _ & [Hze Hzf] & Hzmax) | Hno].
  { intros y. destruct (elig_dec st y); [| right; tauto]. destruct (Z.eq_dec (Rf st y) (Rf st m)); [left | right]; tauto. }
  2: { exfalso. apply (Hno m Hm). auto. }
  pose proof (Hzmax m Hm (conj Hme eq_refl)) as Hzg. simpl in Hzg. exists z. repeat split; try apply Hze; [| lia].
  intros y Hy Hgy. destruct (Z.eq_dec (Rf st y) (Rf st m)) as [He | Hne].
  - specialize (Hzmax y (proj1 (proj1 Hy)) (conj Hy He)). simpl in Hzmax. lia.
  - specialize (Hmin y (proj1 (proj1 Hy)) ltac:(split; [exact Hy | lia])). lia.
Qed.

(** The groups of ER at or above a bit. *)
Definition er_from word i := Z.land word (from 64 i).

Definition is_er st word i := forall j, i <= j < 64 ->
  Z.testbit word j = true <-> exists x, heads_group st j x /\ Rs st x <= V st /\ ~ blocked st x.

Lemma er_has st word i y : is_er st word i -> 0 <= i -> elig st y -> ready st y -> i <= bit y ->
  Z.testbit (er_from word i) (bit y) = true.
Proof.
  intros Her Hi Hy Hr Hb. pose proof (bits y (proj1 (proj1 Hy))). unfold er_from.
  rewrite Z.land_spec, from_spec by lia.
  replace ((i <=? bit y) && (bit y <? 64)) with true by (symmetry; apply andb_true_iff; rewrite Z.leb_le, Z.ltb_lt; lia).
  rewrite andb_true_r. apply Her; [lia |]. destruct (head_exists st y (proj1 Hy)) as (h & Hh & Hg & Hle). exists h.
  assert (Hs : sigma h = sigma y) by (unfold sigma; now rewrite Hg). destruct Hy as [_ Hyv].
  split; [split; [exact Hh | unfold bit; lia] | split; [lia |]].
  apply not_blocked_is_ready. intros b Hbe Hgb. specialize (Hr b Hbe ltac:(lia)). unfold Rf in *. rewrite Hs. lia.
Qed.

(** The lowest bit of them is an eligible and ready head, of the lowest such group. *)
Lemma lowest_of_er st word i : in_word 64 word -> 0 <= i < 64 -> is_er st word i -> er_from word i <> 0 ->
  exists h, heads_group st (lowest_bit (er_from word i)) h /\ elig st h /\ ready st h /\ i <= bit h /\
    forall y, elig st y -> ready st y -> i <= bit y -> g h <= g y.
Proof.
  intros Hw Hi Her Hne. set (x := er_from word i) in *.
  assert (Hx : 0 <= x) by (apply Z.land_nonneg; left; apply Hw).
  destruct (lowest_bit_spec x Hne Hx) as (H0 & Hbit & Hlow).
  assert (Hin : Z.testbit word (lowest_bit x) = true /\ i <= lowest_bit x < 64).
  { change (Z.testbit (Z.land word (from 64 i)) (lowest_bit x) = true) in Hbit. rewrite Z.land_spec, from_spec, !andb_true_iff, Z.leb_le, Z.ltb_lt in Hbit by lia.
    tauto. }
  destruct Hin as [Hin Hrange]. apply Her in Hin; [| lia]. destruct Hin as (h & Hh & Hv & Hb).
  exists h. pose proof (proj2 Hh) as Hbh.
  split; [exact Hh | split; [split; [apply Hh | exact Hv] | split; [now apply not_blocked_is_ready | split; [lia |]]]].
  intros y Hy Hr Hby. pose proof (er_has st word i y Her ltac:(lia) Hy Hr Hby) as Hbity. fold x in Hbity.
  destruct (Z.lt_ge_cases (bit y) (lowest_bit x)) as [Hlt |]; [| unfold bit in *; lia].
  rewrite Hlow in Hbity by lia. discriminate.
Qed.

(** [aim]: the lowest group of ER has the eligible flow that finishes first. *)
Theorem selected_is_least st word k :
  in_word 64 word -> is_er st word 0 -> word <> 0 -> heads_group st (lowest_bit word) k ->
  elig st k /\ forall x, elig st x -> Rf st k <= Rf st x.
Proof.
  intros Hw Her Hne Hk.
  assert (Hall : er_from word 0 = word).
  { apply Z.bits_inj'. intros j Hj. unfold er_from. rewrite Z.land_spec, from_spec by lia.
    destruct (Z.ltb_spec j 64); [rewrite andb_true_r; destruct (Z.leb_spec 0 j); [apply andb_true_r | lia] |].
    rewrite (above_word 64 word j) by (assumption || lia). reflexivity. }
  destruct (lowest_of_er st word 0 Hw ltac:(lia) Her ltac:(now rewrite Hall)) as (h & Hh & He & Hr & _ & Hmin).
  rewrite Hall in Hh. destruct Hk as [[Hka Hkmin] Hkb]. destruct Hh as [[Hha Hhmin] Hhb].
  assert (Hg : g k = g h) by (unfold bit in *; lia).
  assert (HR : Rs st k = Rs st h) by (specialize (Hkmin h Hha ltac:(lia)); specialize (Hhmin k Hka ltac:(lia)); lia).
  assert (HF : Rf st k = Rf st h) by (unfold Rf, sigma; now rewrite HR, Hg).
  split; [split; [exact Hka | destruct He; lia] |]. rewrite HF. apply lowest_in_er_is_least; auto.
  - intros x Hx Hrx. apply Hmin; auto. pose proof (bits x (proj1 (proj1 Hx))). lia.
  - intros x [Hx _] Hgx. specialize (Hhmin x Hx Hgx). unfold Rf, sigma. rewrite Hgx. lia.
Qed.

(** [sets_with]: one comparison with the lowest group of ER above decides whether a head is blocked. [ends] are the
    finishes of the groups. *)
Theorem sets_with_is_exact st word ends k :
  in_word 64 word -> head st k -> bit k + 1 < 64 -> is_er st word (bit k + 1) ->
  (forall j h, heads_group st j h -> ends j = Rf st h) ->
  blocked st k <->
  er_from word (bit k + 1) <> 0 /\ ends (lowest_bit (er_from word (bit k + 1))) < Rf st k.
Proof.
  intros Hw Hk Hlast Her Hends. pose proof (bits k (proj1 (proj1 Hk))) as Hbk.
  destruct (Z.eq_dec (er_from word (bit k + 1)) 0) as [E | E].
  - split; [| intros [H _]; contradiction]. intros Hb. exfalso.
    destruct (blocked_by_ready st k Hb) as (z & Hz & Hr & Hg).
    pose proof (er_has st word (bit k + 1) z Her ltac:(lia) Hz Hr ltac:(unfold bit; lia)) as Hbit.
    rewrite E, Z.testbit_0_l in Hbit. discriminate.
  - destruct (lowest_of_er st word (bit k + 1) Hw ltac:(lia) Her E) as (h & Hh & He & Hr & Hbh & Hmin).
    rewrite (Hends _ _ Hh).
    rewrite (lowest_above_tells st k h He Hr); [tauto | unfold bit in Hbh; lia | |].
    + intros y Hy Hry Hgy. apply Hmin; auto. unfold bit. lia.
    + intros y [Hy _] Hgy. destruct Hh as [[_ Hhmin] _]. specialize (Hhmin y Hy Hgy). unfold Rf, sigma. rewrite Hgy. lia.
Qed.

End QfqWords.
