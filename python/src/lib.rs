//! Fairlane from Python: the module `fairlane._fairlane`, on which the package in `python/fairlane` is built.
//!
//! Argument arrays are used in place, and results are 64-bit cells that Python views as records: neither is copied.
//! Long calls run detached from the interpreter, and check every 10 ms for Ctrl-C ([`watch`]).
#![deny(unsafe_code)]

mod bounds;
mod client;
mod column;
mod fluid;
mod kept;
mod replay;
mod scheduler;
mod sim;
mod site;
mod source;
mod tree;
mod watch;
mod wrong;

use fairlane_config::algorithms::register;
use fairlane_core::Scheduler;
use fairlane_core::sched::SKps;
use pyo3::prelude::*;

/// The compiled part of `fairlane`.
#[pymodule]
fn _fairlane(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // A comparison with the QFQ report needs its S-KPS too. A second interpreter finds it registered.
    let _ = register::<SKps<true>>(SKps::<true>::NAME);
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<client::Client>()?;
    module.add_class::<scheduler::Scheduler>()?;
    module.add_class::<sim::Plan>()?;
    module.add_class::<site::Site>()?;
    module.add_class::<source::Lengths>()?;
    module.add_class::<source::Traffic>()?;
    module.add_class::<tree::NotBefore>()?;
    module.add_class::<tree::Tree>()?;
    module.add_function(wrap_pyfunction!(bounds::bounds, module)?)?;
    module.add_function(wrap_pyfunction!(column::algorithms, module)?)?;
    module.add_function(wrap_pyfunction!(fluid::fluid, module)?)?;
    module.add_function(wrap_pyfunction!(replay::replay, module)?)?;
    module.add_function(wrap_pyfunction!(sim::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(site::scenario, module)?)?;
    module.add_function(wrap_pyfunction!(source::packets, module)?)?;
    Ok(())
}
