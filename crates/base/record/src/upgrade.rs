//! How is the plan of an older run format read?
//!
//! As JSON, before it becomes a [`Plan`](crate::Plan): nobody else knows that there were other formats.

use serde_json::{Value, json};

/// Brings a plan to the current format; one that is current, or newer, stays as it is, and so does what has not the shape
/// of a plan: whoever reads it says what is wrong.
pub fn plan(mut plan: Value) -> Value {
    let (format, window_s, settle_s) =
        (plan["format"].clone(), plan["window_s"].as_f64().unwrap_or(0.0), plan["settle_s"].clone());
    let arms = plan.get_mut("arms").and_then(Value::as_array_mut);
    for arm in arms.into_iter().flatten().filter(|arm| arm.is_object()) {
        if format == json!(1) {
            from_1(arm, window_s);
        }
        // Arms settled all alike once.
        if arm["settle_s"].is_null() {
            arm["settle_s"] = settle_s.clone();
        }
    }
    plan
}

/// Format 1 knew a kind of arm, what the end of its command meant, and no meter but the driver.
fn from_1(arm: &mut Value, window_s: f64) {
    let loaded = arm["workload"]["driver"] != "none";
    let ends = arm["ends"].as_str().unwrap_or("never").to_owned();
    // Dumps lasted for as long as they took: no bound was written down.
    arm["window"] = match ends.as_str() {
        "closes-window" => json!({"until": "done", "at_most_s": window_s}),
        _ if !loaded => json!({"until": "done", "at_most_s": 0.0}),
        _ => json!({"until": "time", "s": window_s}),
    };
    arm["meter"] = json!(if loaded { "driver" } else { "none" });
    if ends == "again" {
        arm["treatment"] = json!({"again": true});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_of_format_1_get_a_window_and_a_meter() {
        let arm = |driver: &str, ends: &str| json!({"workload": {"driver": driver}, "ends": ends});
        let arms =
            [arm("toll", "never"), arm("none", "never"), arm("toll", "closes-window"), arm("toll", "again")];
        let plan = plan(json!({"format": 1, "window_s": 2.0, "arms": arms}));
        let of = |i: usize| (&plan["arms"][i]["window"]["until"], &plan["arms"][i]["meter"]);
        assert_eq!(of(0), (&json!("time"), &json!("driver")));
        assert_eq!(of(1), (&json!("done"), &json!("none")));
        assert_eq!(of(2), (&json!("done"), &json!("driver")));
        assert_eq!(plan["arms"][3]["treatment"]["again"], true);
    }

    #[test]
    fn what_is_no_plan_stays_what_it_is() {
        let format_1 = json!({"format": 1, "arms": ["none", null, 7]});
        for odd in [
            json!([]),
            json!("x"),
            json!(1),
            json!(null),
            json!({"arms": ["none"]}),
            json!({"arms": {}}),
            format_1,
        ] {
            assert_eq!(plan(odd.clone()), odd);
        }
    }

    #[test]
    fn arms_of_an_older_plan_settle_as_the_plan_says() {
        let arms = [json!({"name": "a"}), json!({"name": "b", "settle_s": 3.0})];
        let plan = plan(json!({"format": 2, "settle_s": 0.5, "arms": arms}));
        assert_eq!((&plan["arms"][0]["settle_s"], &plan["arms"][1]["settle_s"]), (&json!(0.5), &json!(3.0)));
    }
}
