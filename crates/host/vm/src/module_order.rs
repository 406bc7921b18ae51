//! Order in which modules are loaded by a machine that has no module loader yet.

use anyhow::{Result, bail};
use std::collections::BTreeMap;

/// What the root of a machine needs: its bus, its transport, its file system, and the overlay.
pub const WANTED: [&str; 4] = ["virtio_pci", "9pnet_virtio", "9p", "overlay"];

/// Paths of the modules of `wanted` that are not built in, each after those that it needs.
///
/// `dependencies` is the text of `modules.dep`, `built_in` that of `modules.builtin`.
pub fn load_order(wanted: &[&str], dependencies: &str, built_in: &str) -> Result<Vec<String>> {
    let modules: BTreeMap<String, (&str, &str)> = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (name_of(path), (path, needs)))
        .collect();
    let mut order = Vec::new();
    for name in wanted {
        if modules.contains_key(*name) {
            add(name, &modules, &mut Vec::new(), &mut order)?;
        } else if !built_in.lines().any(|path| name_of(path) == *name) {
            bail!(
                "this kernel has no module {name}: choose a kernel built with it (Debian's and Ubuntu's are)"
            );
        }
    }
    Ok(order)
}

fn add<'a>(
    name: &str,
    modules: &BTreeMap<String, (&'a str, &'a str)>,
    above: &mut Vec<String>,
    order: &mut Vec<String>,
) -> Result<()> {
    let Some((path, needs)) = modules.get(name) else {
        bail!("modules.dep names {name} but has no line for it: the kernel's modules are incomplete");
    };
    if order.iter().any(|known| known == path) {
        return Ok(());
    }
    if above.iter().any(|user| user == name) {
        bail!("modules.dep says that {name} needs itself: the kernel's modules are damaged");
    }
    above.push(name.to_owned());
    for needed in needs.split_whitespace() {
        add(&name_of(needed), modules, above, order)?;
    }
    above.pop();
    order.push((*path).to_owned());
    Ok(())
}

/// `kernel/net/9p/9pnet-virtio.ko` is `9pnet_virtio`: the kernel takes both signs for the same.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko\n\
        kernel/net/9p/9pnet_virtio.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko\n\
        kernel/net/9p/9pnet.ko: kernel/fs/netfs/netfs.ko\n\
        kernel/fs/netfs/netfs.ko:\n\
        kernel/fs/overlayfs/overlay.ko:\n\
        kernel/drivers/net/veth.ko:\n";

    #[test]
    fn each_module_comes_after_those_that_it_needs() {
        let order = load_order(&WANTED, DEPENDENCIES, "kernel/drivers/virtio/virtio-pci.ko\n").unwrap();
        let names: Vec<_> = order.iter().map(|path| name_of(path)).collect();
        assert_eq!(names, ["netfs", "9pnet", "9pnet_virtio", "9p", "overlay"]);
        assert_eq!(order[0], "kernel/fs/netfs/netfs.ko");
    }

    #[test]
    fn a_kernel_without_a_module_is_refused_with_its_name() {
        let error = load_order(&WANTED, DEPENDENCIES, "").unwrap_err().to_string();
        assert!(error.contains("no module virtio_pci"), "{error}");
        let error = load_order(&["a"], "a.ko: b.ko\n", "").unwrap_err().to_string();
        assert!(error.contains("no line for it"), "{error}");
        let error = load_order(&["a"], "a.ko: b.ko\nb.ko: a.ko\n", "").unwrap_err().to_string();
        assert!(error.contains("needs itself"), "{error}");
    }
}
