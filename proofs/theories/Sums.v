(** More of sums over lists. *)
From Coq Require Import ZArith List Lia.
From Fairlane Require Export Basics.
Import ListNotations.
Open Scope Z_scope.

Lemma sum_ext f h l : (forall k, In k l -> f k = h k) -> sum f l = sum h l.
Proof. intros H. apply Z.le_antisymm; apply sum_le; intros; rewrite H by assumption; lia. Qed.

Lemma sum_add f h l : sum (fun k => f k + h k) l = sum f l + sum h l.
Proof. induction l as [| y l IH]; simpl; [lia | rewrite IH; lia]. Qed.

Lemma sum_upd f k x l : NoDup l -> In k l -> sum (upd f k x) l = sum f l + x - f k.
Proof.
  induction l as [| y l IH]; intros Hn Hk; [destruct Hk |]. inversion Hn as [| y' l' Hy Hn']; subst. simpl.
  destruct Hk as [-> | Hk].
  - rewrite upd_same. rewrite (sum_ext (upd f k x) f); [lia |]. intros j Hj. apply upd_other. intros ->. contradiction.
  - rewrite upd_other by (intros ->; contradiction). rewrite IH by assumption. lia.
Qed.

(** All but one. *)
Lemma sum_others f h k l :
  NoDup l -> In k l -> (forall j, In j l -> j <> k -> f j <= h j) -> sum f l - f k <= sum h l - h k.
Proof.
  intros Hn Hk H. pose proof (sum_upd f k 0 l Hn Hk). pose proof (sum_upd h k 0 l Hn Hk).
  assert (sum (upd f k 0) l <= sum (upd h k 0) l); [| lia].
  apply sum_le. intros j Hj. destruct (Nat.eq_dec j k) as [-> | Hjk]; [now rewrite !upd_same; lia |].
  rewrite !upd_other by assumption. auto.
Qed.
