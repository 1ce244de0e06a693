use super::*;

fn parse(text: &str) -> Location {
    Location::parse(text).unwrap()
}

#[test]
fn a_colon_after_a_slash_belongs_to_a_local_path() {
    assert_eq!(parse("./a:b"), Location::Local(PathBuf::from("./a:b")));
    assert_eq!(parse("/x:y"), Location::Local(PathBuf::from("/x:y")));
}
