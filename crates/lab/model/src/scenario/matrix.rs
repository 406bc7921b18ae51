//! Matrix expansion: one arm as written becomes many that differ in a word or two.
//!
//! `each = { set = ["http", "skype"], mbps = ["100", "200"] }` is an arm for each combination. `{set}` and
//! `{mbps}` are replaced throughout the arm. The last key changes fastest.

use super::ordered_map::OrderedMap;
use super::{Arm, ProcessSpec};
use anyhow::ensure;

/// Most arms of a matrix. A larger one is a mistake: no run would end.
const MAX_ARMS: usize = 2_000;

/// The arm itself, or an arm for each combination.
///
/// # Errors
/// A list is empty, two arms would have the same name, or there are too many arms.
pub fn expand_matrix(arm: Arm) -> anyhow::Result<Vec<Arm>> {
    let lists = arm.each.0.clone();
    let count = lists.iter().try_fold(1_usize, |product, (_, list)| product.checked_mul(list.len()));
    ensure!(
        count.is_some_and(|count| (1..=MAX_ARMS).contains(&count)),
        "arm {}: `each` must expand to 1 to {MAX_ARMS} arms",
        arm.name
    );
    for (key, _) in &lists {
        ensure!(
            arm.name.contains(&format!("{{{key}}}")),
            "arm {}: its name must contain {{{key}}}, so that names are unique",
            arm.name
        );
    }
    let mut arms = vec![Arm { each: OrderedMap::default(), ..arm }];
    for (key, list) in &lists {
        let put_in = |arm: &Arm| {
            list.iter().map(|value| substitute_value(arm.clone(), key, value)).collect::<Vec<_>>()
        };
        arms = arms.iter().flat_map(put_in).collect();
    }
    Ok(arms)
}

/// The arm with `{key}` replaced by a value.
fn substitute_value(mut arm: Arm, key: &str, value: &str) -> Arm {
    let placeholder = format!("{{{key}}}");
    let put = |text: &mut String| {
        if text.contains(&placeholder) {
            *text = text.replace(&placeholder, value);
        }
    };
    arm.varied.push((key.to_owned(), value.to_owned()));
    let Arm {
        name,
        alias,
        title,
        command,
        stages,
        stdout,
        process,
        set,
        set_if_known,
        sysctl,
        against,
        count_with,
        check,
        ..
    } = &mut arm;
    count_with.iter_mut().chain(check).for_each(put);
    [name, title].into_iter().chain(alias).for_each(put);
    command.iter_mut().chain(stages.iter_mut().flatten()).chain(stdout).chain(against).for_each(put);
    set.0.iter_mut().chain(&mut set_if_known.0).chain(&mut sysctl.0).for_each(|(_, value)| put(value));
    for ProcessSpec { name, command, stages, stdout, .. } in process {
        name.iter_mut().chain(command).chain(stages.iter_mut().flatten()).chain(stdout).for_each(put);
    }
    arm
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    fn scenario(arm: &str) -> anyhow::Result<Scenario> {
        Scenario::parse(&format!(
            "name = \"x\"\nquestion = \"?\"\nbaseline = \"none\"\nprimary = \"qps\"\n[profile.a]\nrounds = 1\n\
             window = \"2s\"\nsettle = \"0s\"\n[[arm]]\nname = \"none\"\ntitle = \"none\"\nrole = \"baseline\"\n[[arm]]\n{arm}\n"
        ))
    }

    #[test]
    fn one_arm_stands_for_every_combination_in_the_order_of_the_file() {
        let arms = scenario(
            "name = \"{tool}-{mbps}\"\ntitle = \"{tool} at {mbps} Mb/s\"\neach = { tool = [\"cat\", \"tac\"], mbps = [\"1\", \"2\"] }\n\
             process = [{ command = \"{tool} {mbps} {port}\" }]",
        )
        .unwrap()
        .arms;
        let names: Vec<_> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["none", "cat-1", "cat-2", "tac-1", "tac-2"]);
        assert_eq!(arms[4].title, "tac at 2 Mb/s");
        assert_eq!(arms[4].process[0].command.as_deref(), Some("tac 2 {port}"));
        let varied = [("tool".to_owned(), "tac".to_owned()), ("mbps".to_owned(), "2".to_owned())];
        assert_eq!((&arms[0].varied[..], &arms[4].varied[..]), (&[][..], &varied[..]));
    }

    #[test]
    fn a_list_that_names_nothing_or_tells_nothing_apart_is_refused() {
        let said = |arm: &str| format!("{:#}", scenario(arm).unwrap_err());
        let one = "title = \"t\"\ncommand = \"cat\"\n";
        assert!(said(&format!("{one}name = \"a-{{n}}\"\neach = {{ n = [] }}")).contains("1 to 2000 arms"));
        assert!(said(&format!("{one}name = \"a\"\neach = {{ n = [\"1\"] }}")).contains("must contain {n}"));
        assert!(said(&format!("{one}name = \"a-{{n}}\"\neach = {{ n = [\"1\", \"1\"] }}")).contains("a-1"));
    }
}
