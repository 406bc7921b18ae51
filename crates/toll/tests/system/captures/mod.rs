//! Tests with captures of real servers, clients and tcpdump. Those that lack root or a tool are skipped
//! visibly.

mod clients;
mod compared;
mod connectors;
#[path = "../../pure/captures/encoded.rs"]
#[allow(dead_code, reason = "the tests of `pure` use the rest")]
mod encoded;
mod loads;
mod loss;
mod midway;
mod own {
    toll_testkit::own!();
}
pub mod printed {
    toll_testkit::printed!();
}
mod profiled;
mod queries;
mod replay;
pub mod server;
mod sysbench;
