(** The acceptor as OCaml, with integers of zarith: proofs/certify/certify.ml runs it. *)
From Coq Require Import ZArith Extraction ExtrOcamlBasic ExtrOcamlNatInt ExtrOcamlZBigInt.
From Fairlane Require Import QfqTrace Certify.

(* On machine integers, rather than by OCaml's comparison of any two values. *)
Extract Constant Nat.compare => "fun (n : int) (m : int) -> if n = m then Eq else if n < m then Lt else Gt".

Extraction "acceptor.ml" initial unit_of next fairlane.
