//! The memory of a million tenants. A separate program, since the allocator counts for the whole process.

use fairlane_tower::{Cost, FairSemaphore, Limits};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A quarter of a million, whose tables are as full as those of a million.
const TENANTS: u64 = 250_000;

#[test]
fn a_million_tenants_take_64_bytes_each() {
    let long = fairlane_testkit::long_tests();
    let tenants = TENANTS * if long { 4 } else { 1 };
    let before = Region::new(ALLOCATOR);
    let semaphore = FairSemaphore::new(Limits::permits(4));
    let taken = || {
        let stats = before.change();
        stats.bytes_allocated - stats.bytes_deallocated
    };
    let mut worst: usize = 0;
    for tenant in 0..tenants {
        let permit = semaphore.try_acquire(tenant, Cost::ONE).unwrap();
        assert!(permit.is_some());
        // Often enough to see tables that have just grown.
        if tenant >= 1 << 16 && tenant % 256 == 0 {
            worst = worst.max(taken().div_ceil(semaphore.tenants()));
        }
    }
    let tenants = tenants as usize;
    assert_eq!(semaphore.tenants(), tenants);
    let each = taken().div_ceil(tenants);
    println!("{each} bytes a tenant, {worst} at most on the way");
    assert!(each <= 64, "{each} bytes a tenant");
    assert!(worst <= 64, "{worst} bytes a tenant on the way");
    // Its own figure is right, and tenants above the limit take no more memory.
    assert!(semaphore.memory().abs_diff(taken()) < 4096);
    let full = Limits {
        tenants: 1000,
        ..Limits::permits(4)
    };
    let few = FairSemaphore::new(full);
    let mut at_1000 = 0;
    for tenant in 0..20_000u64 {
        drop(few.try_acquire(tenant, Cost::ONE).unwrap());
        if tenant == 999 {
            at_1000 = few.memory();
        }
    }
    assert_eq!(few.tenants(), 1000);
    assert!(few.memory() <= 2 * at_1000, "{} bytes", few.memory());
}
