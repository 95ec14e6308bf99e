//! Leadership of three voters with their threads, disks and clocks.

mod fitness;
mod starvation;
mod voters;
