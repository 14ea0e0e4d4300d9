(** Facts that the proofs of several algorithms use: multiples, functions changed at one place, least elements, sums. *)
From Coq Require Import ZArith List Lia Bool.
Import ListNotations.
Open Scope Z_scope.
#[global] Arguments Z.mul : simpl never.
#[global] Arguments Z.add : simpl never.
#[global] Arguments Z.div : simpl never.
#[global] Arguments Z.max : simpl never.
#[global] Arguments Z.min : simpl never.

(** * Multiples of a slot *)


Lemma gap s x y : 0 < s -> (s | x) -> (s | y) -> x < y -> x + s <= y.
Proof. intros Hs [a ->] [b ->] H. assert (a < b) by nia. nia. Qed.

Lemma gap_le s x y : 0 < s -> (s | x) -> (s | y) -> x < y + s -> x <= y.
Proof. intros Hs [a ->] [b ->] H. assert (a < b + 1) by nia. nia. Qed.

(** * Functions changed at one place *)

Definition upd {A} (f : nat -> A) k x := fun j => if Nat.eqb j k then x else f j.

Lemma upd_same {A} (f : nat -> A) k x : upd f k x k = x.
Proof. unfold upd. now rewrite Nat.eqb_refl. Qed.

Lemma upd_other {A} (f : nat -> A) k x j : j <> k -> upd f k x j = f j.
Proof. intros H. unfold upd. apply Nat.eqb_neq in H. now rewrite H. Qed.

(** * Least elements *)

(** A list has a least element among those with a decidable property, or no element with it. *)
Lemma least (P : nat -> Prop) (f : nat -> Z) l :
  (forall x, {P x} + {~ P x}) ->
  (exists m, In m l /\ P m /\ forall x, In x l -> P x -> f m <= f x) \/ (forall x, In x l -> ~ P x).
Proof.
  intros dec. induction l as [| y l IH]; [right; intros x [] |].
  destruct (dec y) as [Hy | Hy].
  - left. destruct IH as [(m & Hm & HmP & Hmin) | Hno].
    + destruct (Z_le_gt_dec (f y) (f m)).
      * exists y. split; [now left | split; [assumption |]]. intros x [<- | Hx] HxP; [lia | specialize (Hmin x Hx HxP); lia].
      * exists m. split; [now right | split; [assumption |]]. intros x [<- | Hx] HxP; [lia | auto].
    + exists y. split; [now left | split; [assumption |]]. intros x [<- | Hx] HxP; [lia | exfalso; eapply Hno; eauto].
  - destruct IH as [(m & Hm & HmP & Hmin) | Hno].
    + left. exists m. split; [now right | split; [assumption |]]. intros x [<- | Hx] HxP; [contradiction | auto].
    + right. intros x [<- | Hx]; auto.
Qed.
(** * Sums over a list *)

Definition sum (f : nat -> Z) l := fold_right (fun k acc => f k + acc) 0 l.

Lemma sum_le f h l : (forall k, In k l -> f k <= h k) -> sum f l <= sum h l.
Proof.
  induction l as [| y l IH]; intros H; simpl; [lia |].
  pose proof (H y (or_introl eq_refl)). assert (sum f l <= sum h l) by (apply IH; intros; apply H; now right). lia.
Qed.

Lemma sum_nonneg f l : (forall k, In k l -> 0 <= f k) -> 0 <= sum f l.
Proof.
  induction l as [| y l IH]; intros H; simpl; [lia |].
  pose proof (H y (or_introl eq_refl)). assert (0 <= sum f l) by (apply IH; intros; apply H; now right). lia.
Qed.

Lemma sum_scale f x l : sum (fun k => f k * x) l = sum f l * x.
Proof. induction l as [| y l IH]; simpl; [lia | rewrite IH; lia]. Qed.

(** One term falls by [d], no other rises. *)
Lemma sum_less f h l k d :
  NoDup l -> In k l -> f k + d <= h k -> (forall x, In x l -> x <> k -> f x <= h x) -> sum f l + d <= sum h l.
Proof.
  induction l as [| y l IH]; intros Hn Hk Hd Ho; [destruct Hk |]. inversion Hn as [| y' l' Hy Hn']; subst. simpl.
  destruct Hk as [-> | Hk].
  - assert (sum f l <= sum h l); [| lia]. apply sum_le. intros x Hx. apply Ho; [now right |]. intros ->. contradiction.
  - assert (y <> k) by (intros ->; contradiction). pose proof (Ho y (or_introl eq_refl) H).
    assert (sum f l + d <= sum h l) by (apply IH; auto; intros; apply Ho; auto; now right). lia.
Qed.

Lemma sum_ge_term f l k : In k l -> (forall x, In x l -> 0 <= f x) -> f k <= sum f l.
Proof.
  induction l as [| y l IH]; intros Hk Hp; [destruct Hk |]. simpl. pose proof (Hp y (or_introl eq_refl)).
  destruct Hk as [-> | Hk].
  - assert (0 <= sum f l) by (apply sum_nonneg; intros; apply Hp; now right). lia.
  - assert (f k <= sum f l) by (apply IH; auto; intros; apply Hp; now right). lia.
Qed.
