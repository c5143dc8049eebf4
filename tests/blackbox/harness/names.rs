//! A name whose addresses a test decides.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// `replicas.test`, for a balancer that is started with this [environment](Names::environment).
pub struct Names {
    folder: TempDir,
}

impl Names {
    /// Compiles what stands in for the system's lookup: the C compiler that the balancer is built with is there.
    pub fn new(addresses: &[&str]) -> Names {
        let names = Names { folder: TempDir::new().expect("a temporary directory") };
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/blackbox/harness/names.c");
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
        let compiled = compiler.args(["-shared", "-fPIC", source, "-ldl", "-o"]).arg(names.library()).status();
        assert!(compiled.expect("a C compiler").success());
        names.resolves_to(addresses);
        names
    }

    /// From now on the name has these addresses.
    pub fn resolves_to(&self, addresses: &[&str]) {
        let beside = self.folder.path().join("addresses.new");
        std::fs::write(&beside, addresses.join("\n")).expect("the addresses are written");
        std::fs::rename(beside, self.addresses()).expect("they take their place");
    }

    pub fn environment(&self) -> [(&str, String); 2] {
        let text = |path: PathBuf| path.to_str().expect("a path of plain text").to_owned();
        [("LD_PRELOAD", text(self.library())), ("REPLICAS_TEST", text(self.addresses()))]
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("names.so")
    }

    fn addresses(&self) -> PathBuf {
        self.folder.path().join("addresses")
    }
}
