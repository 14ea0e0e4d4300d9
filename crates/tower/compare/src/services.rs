//! The layer compared with that of `firq-tower`, over a service that yields once and answers.

use fairlane_tower::{Cost, FairLayer, FairSemaphore, Limits};
use firq_tower::{Firq, TenantKey};
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
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

/// The bounds of both services.
trait Called:
    Service<Request, Response: Send, Error: Debug, Future: Send> + Clone + Send + 'static
{
}

impl<S> Called for S where
    S: Service<Request, Response: Send, Error: Debug, Future: Send> + Clone + Send + 'static
{
}

fn ours(permits: u32) -> impl Called {
    let layer = FairLayer::new(
        FairSemaphore::new(Limits::permits(permits)),
        |request: &Request| request.0,
        |_: &Request| Cost::ONE,
    );
    layer.layer(Server)
}

fn theirs(permits: u32) -> impl Called {
    let layer = Firq::new()
        .with_shards(1)
        .with_max_global(1 << 20)
        .with_max_per_tenant(1 << 16)
        .with_quantum(1)
        .with_in_flight_limit(permits as usize)
        .build(|request: &Request| TenantKey::from(request.0));
    layer.layer(Server)
}

/// Starts `tasks` tasks, each a tenant, which make one call after another while a function of the number of calls
/// returns true.
fn start(
    runtime: &Runtime,
    tasks: u64,
    service: impl Called,
    goes_on: impl Fn(u64) -> bool + Clone + Send + 'static,
) -> Vec<JoinHandle<u64>> {
    let task = |tenant| {
        let (mut service, goes_on) = (service.clone(), goes_on.clone());
        runtime.spawn(async move {
            let mut made = 0;
            while goes_on(made) {
                service.call(Request(tenant)).await.unwrap();
                made += 1;
            }
            made
        })
    };
    (0..tasks).map(task).collect()
}

/// Returns the number of all calls, after all tasks have ended.
fn end(runtime: &Runtime, tasks: Vec<JoinHandle<u64>>) -> u64 {
    runtime.block_on(async {
        let mut made = 0;
        for task in tasks {
            made += task.await.unwrap();
        }
        made
    })
}

/// Returns the calls a second.
fn rate(service: impl Called, tasks: u64, seconds: f64) -> f64 {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let start_at = Instant::now();
    let tasks = {
        let ends = Arc::clone(&ends);
        start(&runtime, tasks, service, move |_| {
            !ends.load(Ordering::Relaxed)
        })
    };
    std::thread::sleep(Duration::from_secs_f64(seconds));
    ends.store(true, Ordering::Relaxed);
    end(&runtime, tasks) as f64 / start_at.elapsed().as_secs_f64()
}

pub fn our_rate(tasks: u64, permits: u32, seconds: f64) -> f64 {
    rate(ours(permits), tasks, seconds)
}

pub fn their_rate(tasks: u64, permits: u32, seconds: f64) -> f64 {
    rate(theirs(permits), tasks, seconds)
}

/// Returns the rate without admission.
pub fn open_rate(tasks: u64, seconds: f64) -> f64 {
    rate(Server, tasks, seconds)
}

/// Makes some thousand calls to one of the services, on one thread.
pub fn alone(side: &str, tasks: u64, permits: u32, thousands: u64) {
    let runtime = Builder::new_current_thread().build().unwrap();
    let each = thousands * 1000 / tasks;
    let goes_on = move |made| made < each;
    let tasks = match side {
        "ours" => start(&runtime, tasks, ours(permits), goes_on),
        "theirs" => start(&runtime, tasks, theirs(permits), goes_on),
        _ => start(&runtime, tasks, Server, goes_on),
    };
    println!("{} admissions", end(&runtime, tasks));
}
