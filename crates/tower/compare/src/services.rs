//! The layer beside that of `firq-tower`, over a service that lets others go first and answers.

use fairlane_tower::{Cost, FairLayer, FairSemaphore, Limits};
use firq_tower::{Firq, TenantKey};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tower_layer::Layer;
use tower_service::Service;

/// A request is the number of its tenant.
#[derive(Clone)]
struct Request(u64);

#[derive(Clone)]
struct Server;

impl Service<Request> for Server {
    type Response = u64;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<u64, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(request.0)
        })
    }
}

/// Calls a second of so many tasks, each a tenant, one call after another.
fn calls<S>(service: S, tasks: u64, seconds: f64) -> f64
where
    S: Service<Request> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: std::fmt::Debug,
    S::Response: Send,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let (done, ends) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|tenant| {
            let (done, ends) = (Arc::clone(&done), Arc::clone(&ends));
            let mut service = service.clone();
            runtime.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    service.call(Request(tenant)).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let rate = done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    ends.store(true, Ordering::Relaxed);
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    rate
}

pub fn ours(tasks: u64, permits: u32, seconds: f64) -> f64 {
    let semaphore = FairSemaphore::new(Limits::permits(permits));
    let layer = FairLayer::new(
        semaphore,
        |request: &Request| request.0,
        |_: &Request| Cost::ONE,
    );
    calls(layer.layer(Server), tasks, seconds)
}

pub fn theirs(tasks: u64, permits: u32, seconds: f64) -> f64 {
    let layer = Firq::new()
        .with_shards(1)
        .with_max_global(1 << 20)
        .with_max_per_tenant(1 << 16)
        .with_quantum(1)
        .with_in_flight_limit(permits as usize)
        .build(|request: &Request| TenantKey::from(request.0));
    calls(layer.layer(Server), tasks, seconds)
}
