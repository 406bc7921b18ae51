//! Tests that settings of a server come back byte for byte.

use toll_testkit::lab::{output_text, scenario};

#[test]
fn a_setting_comes_back_whole_in_every_sql_mode() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let arm = "[[arm]]\nname = \"it\"\ntitle = \"a setting\"\nset = { init_connect = \"do '\\\\'\" }\n";
    let text = lab.write("set.toml", &scenario(1, arm));
    server.run("SET GLOBAL general_log_file = 'queries.log'");
    server.run("SET GLOBAL log_output = 'FILE', GLOBAL general_log = ON");
    for mode in ["", "NO_BACKSLASH_ESCAPES", "ANSI_QUOTES"] {
        server.run(&format!("SET GLOBAL sql_mode = '{mode}'"));
        // Longer than what SHOW VARIABLES shows.
        server.run(
            "SET GLOBAL init_connect = concat('do ''C:', char(92), 'it''''s ', repeat('x', 3000), char(92), '''')",
        );
        let value = || server.rows("SELECT length(@@GLOBAL.init_connect), sha1(@@GLOBAL.init_connect)");
        let (before, out) = (value(), lab.path(&format!("run-{mode}")));
        let asked = ["run", &text, "--server", &server.dsn(), "--allow-schema", "toll_set", "--out", &out];
        let run = lab.toll(&asked);
        assert!(run.status.success(), "{}", output_text(&run));
        assert_eq!(value(), before, "{mode}");
    }
    // It was set to one backslash in each of the modes.
    let log = std::fs::read_to_string(server.datadir().join("queries.log")).unwrap();
    assert!(log.contains("SET GLOBAL init_connect = _utf8mb4 X'646F20275C27'"), "{log}");
    lab.assert_nothing_left();
}
