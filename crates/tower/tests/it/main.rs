//! Fair admission as its users see it.

mod attacks;
mod edges;
mod fairness;
mod flood;
mod gateway;
mod grpc;
mod layer;
mod panics;
mod simulation;
mod stacks;
mod threads;
