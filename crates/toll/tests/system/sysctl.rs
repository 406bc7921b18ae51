//! Tests that a kernel setting holds while its arm is on, and that it is always restored.
//!
//! The setting is a limit of the page cache that nothing here comes near; skipped visibly without root.

use std::time::{Duration, Instant};
use toll_testkit::lab::output_text;

const SETTING: &str = "vm.dirty_background_bytes";
const GIB: &str = "1073741824";

/// Values of this setting in bytes, and of the ratio that applies if it is 0.
fn read_settings() -> [String; 2] {
    ["bytes", "ratio"].map(|unit| {
        let value = std::fs::read_to_string(format!("/proc/sys/vm/dirty_background_{unit}"));
        value.unwrap().trim().to_owned()
    })
}

/// An arm that changes nothing, and one that changes the setting to `value` beside `command`.
fn scenario(value: &str, command: &str) -> String {
    format!(
        "name = \"kernel\"\nquestion = \"?\"\nsubject = \"host\"\nbaseline = \"plain\"\nprimary = \"elapsed_s\"\n\
         [profile.quick]\nrounds = 1\nwindow = \"2s\"\nsettle = \"10ms\"\n\
         [[arm]]\nname = \"plain\"\ntitle = \"plain\"\nrole = \"baseline\"\nends = \"closes-window\"\n\
         at_most = \"60s\"\ncommand = \"true\"\n\
         [[arm]]\nname = \"changed\"\ntitle = \"changed\"\nends = \"closes-window\"\nat_most = \"60s\"\n\
         sysctl = {{ \"{SETTING}\" = \"{value}\" }}\ncommand = \"{command}\"\n"
    )
}

#[test]
fn a_setting_of_the_kernel_holds_for_its_arm_and_is_put_back_after_success_failure_or_a_kill() {
    let lab = toll_testkit::lab!();
    let path = "/proc/sys/vm/dirty_background_bytes";
    if !lab.is_root || std::fs::OpenOptions::new().write(true).open(path).is_err() {
        toll_testkit::skip!("{path} cannot be written here: needs root on a host of its own");
        return;
    }
    let before = read_settings();
    assert_ne!(before[0], GIB, "this host has the test's own value");
    let run = |scenario: &str, out: &str| lab.toll(&["run", scenario, "--out", &lab.path(out)]);

    let seen = lab.path("seen");
    let good = lab.write("good.toml", &scenario(GIB, &format!("cp {path} {seen}")));
    let success = run(&good, "success");
    assert!(success.status.success(), "{}", output_text(&success));
    assert_eq!(std::fs::read_to_string(&seen).unwrap().trim(), GIB);
    assert_eq!(read_settings(), before);

    let refused = run(&lab.write("bad.toml", &scenario("much", "true")), "failure");
    assert!(
        output_text(&refused).contains(&format!("cannot set {SETTING} to much")),
        "{}",
        output_text(&refused)
    );
    assert_eq!(read_settings(), before);

    let unknown = scenario(GIB, "true").replace(SETTING, "vm.no_such_setting");
    let unavailable = run(&lab.write("unknown.toml", &unknown), "unknown");
    assert!(
        output_text(&unavailable).contains("this kernel has no setting vm.no_such_setting"),
        "{}",
        output_text(&unavailable)
    );

    let long = lab.write("long.toml", &scenario(GIB, "sleep 30"));
    let mut killed = lab.spawn(&["run", &long, "--out", &lab.path("killed")]);
    let begun = Instant::now();
    while read_settings()[0] != GIB {
        assert!(begun.elapsed() < Duration::from_secs(60), "the setting never came");
        std::thread::sleep(Duration::from_millis(20));
    }
    lab.signal(&killed, "KILL");
    killed.wait().unwrap();
    assert_eq!(read_settings()[0], GIB, "a killed run leaves it");
    let again = run(&good, "again");
    assert!(
        output_text(&again).contains("has left settings of the kernel changed"),
        "{}",
        output_text(&again)
    );
    assert_eq!(read_settings()[0], GIB);
    let clean = lab.toll(&["clean"]);
    assert!(clean.status.success(), "{}", output_text(&clean));
    assert_eq!(read_settings(), before);
    lab.assert_nothing_left();
}
