//! Tells the code whether libxenmanage is linked: `cfg(xenmanage)`, found out by xen-sys.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(xenmanage)");
    if std::env::var("DEP_XEN_MANAGE").is_ok_and(|manage| manage == "1") {
        println!("cargo::rustc-cfg=xenmanage");
    }
}
