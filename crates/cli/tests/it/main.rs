//! The program as a user starts it, in one binary: tests that wait need not wait for one another.

mod attach;
mod bench;
mod check;
mod classes_told;
mod odd_input;
mod program;
mod pspat;
mod replay;
mod run;
mod sim;
mod site;
mod site_classes;
mod site_control;
mod site_early;
mod site_input;
mod site_interfaces;
mod site_lengths;
mod site_output;
mod site_overload;
mod site_passing;
mod site_reload;
mod site_service;
mod tcp_classes;
mod tcp_offloads;
mod tcp_queue_management;
mod usage;
