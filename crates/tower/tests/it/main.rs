//! Fair admission as its users see it.

mod fairness;
mod flood;
mod gateway;
mod layer;
mod simulation;
mod threads;
