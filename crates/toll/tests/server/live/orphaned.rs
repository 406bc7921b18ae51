//! A method that the guard alone is left to switch off.

use super::{SHORT, child_pids, guard_among, production, send_signal};
use std::path::Path;
use std::time::Duration;
use toll_testkit::lab::output_text;

/// Longer than the guard's statements wait for an answer.
const STANDSTILL: Duration = Duration::from_secs(9);

#[test]
fn system_a_guard_goes_on_until_a_server_that_stood_still_has_the_method_off_and_leaves_nothing_to_be_put_back()
 {
    let at = production();
    at.with_users(|| {
        let mut child = at.spawn_for(&SHORT, &at.lab.path("run"), &[]);
        let guard = guard_among(&child_pids(child.id()));
        at.server.signal("STOP");
        send_signal(child.id(), "KILL");
        let _ = child.wait();
        std::thread::sleep(STANDSTILL);
        at.server.signal("CONT");
        at.assert_off();
        at.wait_until("without a guard", || !Path::new(&format!("/proc/{guard}")).exists());
    });
    // Somebody wants the log by now: no cleanup takes it away.
    at.server.run("SET GLOBAL general_log = ON");
    let cleaned = at.lab.toll(&["clean"]);
    assert!(cleaned.status.success(), "{}", output_text(&cleaned));
    assert!(at.is_on(), "{}", output_text(&cleaned));
    at.server.run("SET GLOBAL general_log = OFF");
    at.lab.assert_nothing_left();
}
