//! Schema of the web site's database: tables, columns and their value generators.

use super::rows::Value::{
    self, Address, Between, Email, ForeignKey, Hex, Html, Id, NullableForeignKey, OneOf, Picture, Prose,
    Serialised, Slug, Timestamp, UserAgent, Words,
};

/// One table of the site.
#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    /// Rows at full size.
    rows: u64,
    pub columns: &'static [Column],
    /// Keys in addition to the primary one.
    keys: &'static [&'static str],
}

#[derive(Debug)]
pub struct Column {
    name: &'static str,
    kind: &'static str,
    pub value: Value,
}

const fn table(
    name: &'static str,
    rows: u64,
    columns: &'static [Column],
    keys: &'static [&'static str],
) -> Table {
    Table { name, rows, columns, keys }
}

const fn col(name: &'static str, kind: &'static str, value: Value) -> Column {
    Column { name, kind, value }
}

const ID: Column = col("id", "INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY", Id);
/// Type of a column that refers to another table's row.
const REF: &str = "INT UNSIGNED NOT NULL";
const REF_OR_NULL: &str = "INT UNSIGNED";
const CREATED: Column = col("created_at", "DATETIME NOT NULL", Timestamp);

/// All tables, parents before children.
///
/// Mean lengths are such that a server reports 2,733 MB for the whole. That is within half a percent of the
/// 2,723 MB in the document.
pub static TABLES: [Table; 21] = [
    table(
        "languages",
        42,
        &[ID, col("code", "CHAR(8) NOT NULL", Hex(5)), col("name", "VARCHAR(120) NOT NULL", Words(2))],
        &[],
    ),
    table(
        "users",
        38_412,
        &[
            ID,
            col("email", "VARCHAR(190) NOT NULL", Email),
            col("login", "VARCHAR(120) NOT NULL", Slug(2)),
            col("password_hash", "CHAR(64) NOT NULL", Hex(64)),
            col("language_id", REF, ForeignKey("languages")),
            col(
                "status",
                "ENUM('active','idle','banned') NOT NULL",
                OneOf(&["active", "active", "idle", "banned"]),
            ),
            CREATED,
        ],
        &["UNIQUE KEY (email)", "KEY (login)", "FOREIGN KEY (language_id) REFERENCES languages (id)"],
    ),
    table(
        "profiles",
        38_412,
        &[
            ID,
            col("user_id", REF, ForeignKey("users")),
            col("display_name", "VARCHAR(255) NOT NULL", Words(3)),
            col("website", "VARCHAR(255) NOT NULL", Slug(3)),
            col("about", "TEXT NOT NULL", Prose(800)),
            col("preferences", "TEXT NOT NULL", Serialised(300)),
        ],
        &["FOREIGN KEY (user_id) REFERENCES users (id)"],
    ),
    table(
        "sessions",
        24_317,
        &[
            ID,
            col("token", "CHAR(32) NOT NULL", Hex(32)),
            col("user_id", REF_OR_NULL, NullableForeignKey("users", 40)),
            col("address", "VARCHAR(45) NOT NULL", Address),
            col("data", "MEDIUMTEXT NOT NULL", Serialised(2_200)),
            CREATED,
        ],
        &["KEY (token)", "FOREIGN KEY (user_id) REFERENCES users (id)"],
    ),
    table(
        "options",
        3_120,
        &[
            ID,
            col("name", "VARCHAR(190) NOT NULL", Slug(3)),
            col("value", "LONGTEXT NOT NULL", Serialised(1_500)),
            col("autoload", "TINYINT NOT NULL", Between(0, 1)),
        ],
        &["KEY (name)"],
    ),
    table(
        "courses",
        180,
        &[
            ID,
            col("language_id", REF, ForeignKey("languages")),
            col("title", "VARCHAR(400) NOT NULL", Words(6)),
            col("description", "TEXT NOT NULL", Html(4_000)),
            CREATED,
        ],
        &["FOREIGN KEY (language_id) REFERENCES languages (id)"],
    ),
    table(
        "lessons",
        5_406,
        &[
            ID,
            col("course_id", REF, ForeignKey("courses")),
            col("position", "SMALLINT NOT NULL", Between(1, 400)),
            col("title", "VARCHAR(400) NOT NULL", Words(8)),
            col("body", "LONGTEXT NOT NULL", Html(18_000)),
        ],
        &["FOREIGN KEY (course_id) REFERENCES courses (id)"],
    ),
    table(
        "exercises",
        32_118,
        &[
            ID,
            col("lesson_id", REF, ForeignKey("lessons")),
            col(
                "kind",
                "ENUM('choice','gap','listen','order') NOT NULL",
                OneOf(&["choice", "gap", "listen", "order"]),
            ),
            col("question", "TEXT NOT NULL", Prose(500)),
            col("answers", "TEXT NOT NULL", Serialised(700)),
        ],
        &["FOREIGN KEY (lesson_id) REFERENCES lessons (id)"],
    ),
    table(
        "words",
        64_205,
        &[
            ID,
            col("language_id", REF, ForeignKey("languages")),
            col("written", "VARCHAR(190) NOT NULL", Words(1)),
            col("spoken", "VARCHAR(190) NOT NULL", Slug(1)),
            col("rank", "INT UNSIGNED NOT NULL", Between(1, 60_000)),
        ],
        &["KEY (written)", "FOREIGN KEY (language_id) REFERENCES languages (id)"],
    ),
    table(
        "translations",
        96_340,
        &[
            ID,
            col("from_id", REF, ForeignKey("words")),
            col("to_id", REF, ForeignKey("words")),
            col("example", "VARCHAR(600) NOT NULL", Words(12)),
        ],
        &["FOREIGN KEY (from_id) REFERENCES words (id)", "FOREIGN KEY (to_id) REFERENCES words (id)"],
    ),
    table(
        "posts",
        46_022,
        &[
            ID,
            col("user_id", REF, ForeignKey("users")),
            col("title", "VARCHAR(400) NOT NULL", Words(9)),
            col("slug", "VARCHAR(190) NOT NULL", Slug(5)),
            col(
                "status",
                "ENUM('draft','public','gone') NOT NULL",
                OneOf(&["public", "public", "draft", "gone"]),
            ),
            col("excerpt", "TEXT NOT NULL", Prose(300)),
            col("body", "LONGTEXT NOT NULL", Html(13_400)),
            col("views", "INT UNSIGNED NOT NULL", Between(0, 90_000)),
            CREATED,
        ],
        &["KEY (slug)", "KEY (status, created_at)", "FOREIGN KEY (user_id) REFERENCES users (id)"],
    ),
    table(
        "revisions",
        52_731,
        &[
            ID,
            col("post_id", REF, ForeignKey("posts")),
            col("user_id", REF, ForeignKey("users")),
            col("body", "LONGTEXT NOT NULL", Html(11_950)),
            CREATED,
        ],
        &["FOREIGN KEY (post_id) REFERENCES posts (id)", "FOREIGN KEY (user_id) REFERENCES users (id)"],
    ),
    table(
        "post_meta",
        92_044,
        &[
            ID,
            col("post_id", REF, ForeignKey("posts")),
            col("name", "VARCHAR(190) NOT NULL", Slug(2)),
            col("value", "LONGTEXT NOT NULL", Serialised(220)),
        ],
        &["KEY (name)", "FOREIGN KEY (post_id) REFERENCES posts (id)"],
    ),
    table(
        "comments",
        118_236,
        &[
            ID,
            col("post_id", REF, ForeignKey("posts")),
            col("user_id", REF_OR_NULL, NullableForeignKey("users", 25)),
            col("address", "VARCHAR(45) NOT NULL", Address),
            col("agent", "VARCHAR(255) NOT NULL", UserAgent),
            col("body", "TEXT NOT NULL", Prose(1_400)),
            col("approved", "TINYINT NOT NULL", Between(0, 1)),
            CREATED,
        ],
        &[
            "KEY (approved, created_at)",
            "FOREIGN KEY (post_id) REFERENCES posts (id)",
            "FOREIGN KEY (user_id) REFERENCES users (id)",
        ],
    ),
    table(
        "tags",
        1_815,
        &[ID, col("name", "VARCHAR(190) NOT NULL", Words(2)), col("slug", "VARCHAR(190) NOT NULL", Slug(2))],
        &["KEY (slug)"],
    ),
    table(
        "post_tags",
        70_150,
        &[ID, col("post_id", REF, ForeignKey("posts")), col("tag_id", REF, ForeignKey("tags"))],
        &["FOREIGN KEY (post_id) REFERENCES posts (id)", "FOREIGN KEY (tag_id) REFERENCES tags (id)"],
    ),
    table(
        "media",
        9_037,
        &[
            ID,
            col("post_id", REF_OR_NULL, NullableForeignKey("posts", 10)),
            col("file", "VARCHAR(190) NOT NULL", Slug(3)),
            col("kind", "VARCHAR(40) NOT NULL", OneOf(&["image/jpeg", "image/png", "image/gif"])),
            col("thumbnail", "MEDIUMBLOB NOT NULL", Picture(26_000)),
            CREATED,
        ],
        &["FOREIGN KEY (post_id) REFERENCES posts (id)"],
    ),
    table(
        "messages",
        31_402,
        &[
            ID,
            col("from_id", REF, ForeignKey("users")),
            col("to_id", REF, ForeignKey("users")),
            col("subject", "VARCHAR(400) NOT NULL", Words(7)),
            col("body", "TEXT NOT NULL", Prose(1_700)),
            CREATED,
        ],
        &["FOREIGN KEY (from_id) REFERENCES users (id)", "FOREIGN KEY (to_id) REFERENCES users (id)"],
    ),
    table(
        "enrolments",
        41_209,
        &[
            ID,
            col("user_id", REF, ForeignKey("users")),
            col("course_id", REF, ForeignKey("courses")),
            CREATED,
        ],
        &["FOREIGN KEY (user_id) REFERENCES users (id)", "FOREIGN KEY (course_id) REFERENCES courses (id)"],
    ),
    table(
        "progress",
        60_511,
        &[
            ID,
            col("user_id", REF, ForeignKey("users")),
            col("lesson_id", REF, ForeignKey("lessons")),
            col("done_pct", "TINYINT UNSIGNED NOT NULL", Between(0, 100)),
            col("points", "INT UNSIGNED NOT NULL", Between(0, 5_000)),
            CREATED,
        ],
        &["FOREIGN KEY (user_id) REFERENCES users (id)", "FOREIGN KEY (lesson_id) REFERENCES lessons (id)"],
    ),
    table(
        "access_log",
        30_553,
        &[
            ID,
            col("user_id", REF_OR_NULL, NullableForeignKey("users", 60)),
            col("address", "VARCHAR(45) NOT NULL", Address),
            col("path", "VARCHAR(255) NOT NULL", Slug(4)),
            col("agent", "VARCHAR(255) NOT NULL", UserAgent),
            col("status", "SMALLINT NOT NULL", OneOf(&["200", "200", "200", "304", "404", "500"])),
            col("took_us", "INT UNSIGNED NOT NULL", Between(300, 900_000)),
            CREATED,
        ],
        // A log that refers to nobody: users may be gone.
        &["KEY (created_at)"],
    ),
];

impl Table {
    /// Rows at that scale, at least one.
    pub fn rows(&self, scale: f64) -> u64 {
        ((self.rows as f64 * scale).round() as u64).max(1)
    }

    /// Approximate bytes of its text at full size: enough to find the slowest table.
    pub fn bytes(&self) -> u64 {
        let of = |value: Value| match value {
            Prose(mean) | Html(mean) | Serialised(mean) | Picture(mean) => mean,
            _ => 20,
        };
        self.rows * self.columns.iter().map(|column| of(column.value)).sum::<u64>()
    }

    pub fn create(&self) -> String {
        let columns = self.columns.iter().map(|column| format!("`{}` {}", column.name, column.kind));
        let parts: Vec<String> = columns.chain(self.keys.iter().map(|key| (*key).to_owned())).collect();
        format!(
            "CREATE TABLE `{}` ({}) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4",
            self.name,
            parts.join(", ")
        )
    }

    /// The SQL before its rows.
    pub fn insert(&self) -> String {
        let columns: Vec<String> = self.columns.iter().map(|column| format!("`{}`", column.name)).collect();
        format!("INSERT INTO `{}` ({}) VALUES ", self.name, columns.join(", "))
    }

    /// Names of the tables that its rows refer to.
    #[cfg(test)]
    pub fn refers_to(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().filter_map(|column| match column.value {
            ForeignKey(other) | NullableForeignKey(other, _) => Some(other),
            _ => None,
        })
    }
}
