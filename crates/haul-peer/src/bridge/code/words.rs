//! The words of spoken codes: short English words that are easy to spell and to tell apart.
//!
//! Any two differ by at least two letters (inserted, removed or replaced), so a single mistyped letter never turns one
//! word into another. The list is not part of the protocol, but both sides must know a word: words may be added, not
//! removed.

/// The number of words: each is 9 bits of a code.
pub(super) const COUNT: usize = 512;

/// The words, in alphabetical order, separated by white space.
const TEXT: &str = "
acorn acrobat admiral airport alarm album almond anchor angle animal answer anvil apple
apricot april arcade archer arctic arrow artist ascent asphalt athlete atlas attic august
autumn avenue avocado badger bakery balcony ballad bamboo banana banjo banquet barley barrel
basket bathtub battery beacon beaver bedroom beetle bellows bicycle biscuit bishop blanket
blossom bonfire bottle boulder bramble bridge bubble bucket buffalo bugle butler button
cabbage cabin cactus camel camera canal candle canvas canyon captain caramel caravan cargo
carpet carrot cartoon castle cedar celery cello cement centaur cereal chalk chapel cheese
cherry chess chimney chisel cinema circus citrus cliff clinic clock clover coconut coffee
comet compass concert copper coral cottage cotton cowboy coyote cradle crane crayon cricket
crocus curtain cushion cyclone dairy dancer dawn decade delta dentist desert diamond diary
diesel dinner diploma doctor dolphin domino donkey dragon drawer drummer dune dynamo eagle
easel echo eclipse editor elbow ember emerald empire engine epoch eraser escape evening
exhibit express fabric factory falcon family farmer feather ferry fiddle figure finger flute
folder forest forge fossil freckle frost fruit funnel furnace gadget galaxy gallery garage
garden garlic gazelle giant giraffe glacier gloss glove goblet golfer gondola gorilla
granite grape gravel guitar habitat hammer hamster harvest hazel helmet herring hexagon
highway history hockey holiday honey hornet hostel hurdle hydrant iceberg icicle igloo
incense index insect island ivory jacket jaguar january jasmine jelly jersey jewel jigsaw
journal judge juggler jungle jupiter justice kayak kennel ketchup kettle kimono kingdom
kitchen kiwi koala ladder lagoon lantern lasso laundry lawyer lecture lemon leopard lettuce
library lilac linen lizard lobster locker logbook lotus luggage lumber lunch lyric machine
magnet magpie mailbox mammoth mango mansion maple marble market marsh meadow medal melody
memoir menu meteor mineral minute mirror mitten morning mosaic motor muffin museum mustard
napkin narwhal nebula needle nephew neptune nickel noodle nugget nursery nutmeg oasis
oatmeal object ocean office olive omelet onion opera orange orbit orchard orchid organ
origami ostrich otter outpost oval oxygen oyster paddle padlock palace pancake panther
papaya paper parade parcel parsley pastry peacock peanut pebble pelican pencil pepper
perfume piano picnic pigeon pilgrim pillow pilot pioneer planet plaster pocket polar pollen
pony poppy potato powder prairie printer prism proverb pumpkin puppet purple puzzle pyramid
python quartz queen quilt quiver quiz rabbit radar radish railway rainbow raven razor recipe
referee reptile rescue ribbon rice river robin rooster rubber rudder runway safari saffron
sailor salad salmon sandal saturn sausage scarf school scooter seagull season secret senator
shadow shampoo sheriff shovel shuttle signal silver siren sketch skillet slipper snowman
soccer sofa soldier sonnet sparrow spider spinach sponge spoon stadium stapler statue
steeple stencil stirrup studio sugar summer sunset surgeon swallow sweater syrup table
tadpole tavern teacher teapot temple tennis theater thermos thimble thistle thunder ticket
tiger timber tinsel toaster tomato tornado toucan tourist tower tractor trapeze trident
trophy trumpet tulip tundra turban turnip turtle unicorn uniform urchin utensil valley
vanilla vault velvet veranda veteran victory village vinegar violet violin visitor vitamin
volcano voyage waffle wagon walnut walrus wedding whale wheat whisker widget window winter
wolf yogurt zebra zenith zigzag zipper zodiac
";

/// All words, in alphabetical order.
fn all() -> impl Iterator<Item = &'static str> {
    TEXT.split_ascii_whitespace()
}

/// The word at an index below [`COUNT`].
pub(super) fn word(at: usize) -> &'static str {
    all().nth(at).unwrap_or_default()
}

/// The word that equals `text`.
pub(super) fn find(text: &str) -> Option<&'static str> {
    all().find(|known| *known == text)
}

/// The first word that differs from `typed` by one inserted, removed or replaced letter.
pub(super) fn near(typed: &str) -> Option<&'static str> {
    all().find(|known| is_near(known, typed))
}

/// Whether two words differ by one letter at most. They are ASCII.
fn is_near(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    if long.len() - short.len() > 1 {
        return false;
    }
    let same = short.iter().zip(long).take_while(|(a, b)| a == b).count();
    let skipped = usize::from(short.len() == long.len());
    let (short, long) = (short.get(same + skipped..), long.get(same + 1..));
    short.unwrap_or_default() == long.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of letters to insert, remove or replace.
    fn distance(one: &str, other: &str) -> usize {
        let mut above: Vec<usize> = (0..=other.len()).collect();
        for (row, a) in one.bytes().enumerate() {
            let mut line = vec![row + 1];
            for (column, b) in other.bytes().enumerate() {
                let replaced = above[column] + usize::from(a != b);
                line.push(replaced.min(above[column + 1] + 1).min(line[column] + 1));
            }
            above = line;
        }
        above[other.len()]
    }

    #[test]
    fn words_are_short_sorted_and_in_lower_case() {
        let words: Vec<_> = all().collect();
        assert_eq!(words.len(), COUNT);
        assert!(words.is_sorted_by(|one, next| one < next));
        for word in words {
            assert!((4..=8).contains(&word.len()), "{word}");
            assert!(word.bytes().all(|byte| byte.is_ascii_lowercase()), "{word}");
        }
    }

    #[test]
    fn any_two_words_differ_by_two_letters() {
        let words: Vec<_> = all().collect();
        for (at, one) in words.iter().enumerate() {
            for other in &words[at + 1..] {
                assert!(distance(one, other) >= 2, "{one} {other}");
                assert!(!is_near(one, other), "{one} {other}");
            }
        }
    }

    #[test]
    fn a_mistyped_letter_is_recognized() {
        for typed in ["candel", "orbt", "orbits", "orbid", "rbit", "candl", "xcandle", "", "o"] {
            for word in ["orbit", "candle"] {
                assert_eq!(is_near(word, typed), distance(word, typed) <= 1, "{word} {typed}");
            }
        }
        assert_eq!(near("orbt"), Some("orbit"));
        assert_eq!(near("candelabra"), None);
    }

    #[test]
    fn every_word_is_found() {
        for (at, known) in all().enumerate() {
            assert_eq!((word(at), find(known)), (known, Some(known)));
        }
        assert_eq!(find("Orbit"), None);
    }
}
