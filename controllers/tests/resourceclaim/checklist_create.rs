//! t
use crate::common::{*, objects::*, server::Kind};
#[test]
fn smoke() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("p").templated("e", "t"));
    w.settle();
    let c = w.only_claim_of(&uid, "e");
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("e", &c)]));
}
