//! Fills messages of the protocol through their descriptors: every string and every bytes field gets a canary of its
//! own, every field that may be shown a token of its own.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use criscope::cri::identity::{QUOTABLE, SHOWN};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

/// Part of every canary; no word of any language has five of its letters in a row.
const MARK: &str = "kwyjibozq";

/// Commands: the program may be shown, the arguments may not.
const COMMANDS: [&str; 3] = [
    "ContainerConfig.command",
    "ExecSyncRequest.cmd",
    "ExecRequest.cmd",
];

/// The protocol as the program knows it.
pub(super) fn pool() -> DescriptorPool {
    DescriptorPool::decode(criscope::cri::DESCRIPTOR).expect("descriptor")
}

/// Makes canaries and tokens and remembers them.
#[derive(Debug, Default)]
pub(super) struct Filler {
    count: usize,
    /// Canaries, as text.
    pub(super) secrets: Vec<String>,
    /// Tokens, by `MESSAGE.FIELD`.
    pub(super) tokens: Vec<(String, String)>,
    /// The core of each canary, if no two canaries have a part in common and quotable fields have none.
    pub(super) cores: Option<Vec<String>>,
}

impl Filler {
    /// One whose canaries have no part in common.
    pub(super) fn distinct() -> Self {
        Self {
            cores: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// A new canary. They come in the shapes that values have.
    pub(super) fn canary(&mut self) -> String {
        self.count += 1;
        let core = match &mut self.cores {
            None => format!("{MARK}{:04x}vex", self.count),
            Some(cores) => {
                cores.push(letters(self.count));
                letters(self.count)
            }
        };
        let canary = match self.count % 7 {
            0 => format!("{core} and {core}"),
            1 => format!("line {core}\nnext {core}\n"),
            2 => format!("{{\"auths\":{{\"auth\":\"{core}\"}}}}"),
            3 => format!("https://user:{core}@host.example/p?sig={core}"),
            4 => format!("--token={core}"),
            5 => format!("a'\"\\{core}\ty"),
            _ => core,
        };
        self.secrets.push(canary.clone());
        canary
    }

    /// A message with everything filled in.
    pub(super) fn message(&mut self, of: &MessageDescriptor) -> DynamicMessage {
        let mut message = DynamicMessage::new(of.clone());
        for field in of.fields() {
            let value = if field.is_map() {
                self.map(&field)
            } else if COMMANDS.contains(&&*format!("{}.{}", of.name(), field.name())) {
                let argument = self.canary();
                Value::List(["/opt/run".to_owned(), argument].map(Value::String).into())
            } else if field.is_list() {
                Value::List(vec![self.value(of, &field), self.value(of, &field)])
            } else {
                self.value(of, &field)
            };
            message.set_field(&field, value);
        }
        message
    }

    /// The bytes of a message with everything filled in.
    pub(super) fn bytes(&mut self, of: &MessageDescriptor) -> Vec<u8> {
        self.message(of).encode_to_vec()
    }

    fn map(&mut self, field: &FieldDescriptor) -> Value {
        let Kind::Message(entry) = field.kind() else {
            panic!("{} is no map", field.full_name());
        };
        let mut pair = || match self.value(&entry, &entry.map_entry_key_field()) {
            Value::String(key) => (
                MapKey::String(key),
                self.value(&entry, &entry.map_entry_value_field()),
            ),
            other => panic!("{}: a key of {other:?}", entry.full_name()),
        };
        Value::Map([pair(), pair()].into())
    }

    fn value(&mut self, of: &MessageDescriptor, field: &FieldDescriptor) -> Value {
        match field.kind() {
            Kind::String => Value::String(self.text(&format!("{}.{}", of.name(), field.name()))),
            Kind::Bytes => {
                // Not UTF-8, so that nothing may rely on that.
                let canary = self.canary();
                let bytes = [b"\xff\xfe", canary.as_bytes(), b"\xc3\x28"].concat();
                Value::Bytes(bytes.into())
            }
            Kind::Message(inner) => Value::Message(self.message(&inner)),
            Kind::Enum(kind) => Value::EnumNumber(kind.values().last().map_or(0, |v| v.number())),
            Kind::Bool => Value::Bool(true),
            Kind::Double => Value::F64(7.0),
            Kind::Float => Value::F32(7.0),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(7),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(7),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(7),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(7),
        }
    }

    fn text(&mut self, name: &str) -> String {
        if self.cores.is_some() && QUOTABLE.contains(&name) {
            return "quotable".to_owned();
        }
        if !SHOWN.contains(&name) {
            return self.canary();
        }
        self.count += 1;
        let token = format!("tok{:04x}shown", self.count);
        self.tokens.push((name.to_owned(), token.clone()));
        match name {
            // A reference may carry credentials, and those may not be shown.
            "ImageSpec.image" => {
                let (user, password, query) = (self.canary(), self.canary(), self.canary());
                let password = password.replace(['?', '#'], "/");
                let user = user.replace(['?', '#', '/'], "_");
                format!("https://{user}:{password}@registry.example/{token}:1?sig={query}")
            }
            _ => token,
        }
    }
}

/// Letters that no word has in this order.
fn letters(number: usize) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz";
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let letters = (0..12).map(|_| {
        state = (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        LETTERS[(state >> 40) as usize % LETTERS.len()] as char
    });
    letters.collect()
}

/// The forms in which a careless program writes a value down.
pub(super) fn echoes(value: &str) -> Vec<String> {
    let core = &value[value.find(MARK).unwrap_or(0)..];
    let each = |f: &dyn Fn(char) -> String| core.chars().map(f).collect::<String>();
    vec![
        value.to_owned(),
        format!("{value:?}"),
        serde_json::to_string(&format!("{value:?}")).expect("json"),
        value.to_uppercase(),
        STANDARD.encode(value),
        URL_SAFE_NO_PAD.encode(value),
        hex(value.as_bytes()),
        hex(value.as_bytes()).to_uppercase(),
        percent_encode(value.as_bytes(), NON_ALPHANUMERIC).to_string(),
        core[..7.min(core.len())].to_owned(),
        core[2..].to_owned(),
        format!("{}\n{}", &core[..6], &core[6..]),
        each(&|c| format!("\\x{:02x}", c as u32)),
        each(&|c| format!("\\u{:04x}", c as u32)),
        each(&|c| format!("%{:02X}", c as u32)),
        each(&|c| format!("&#{};", c as u32)),
        STANDARD.encode(format!("user:{value}")),
        serde_json::to_string(&serde_json::to_string(value).expect("json")).expect("json"),
        value.replace(['\'', '"'], "\\\\'"),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Searches for canaries in any form; returns the text around each.
pub(super) fn leaks(text: &[u8]) -> Vec<String> {
    leaks_of(MARK, 5, &String::from_utf8_lossy(text))
}

/// Searches for runs of this many letters of a core in any form; returns the text around each.
pub(super) fn leaks_of(core: &str, window: usize, text: &str) -> Vec<String> {
    let lower = text.to_ascii_lowercase();
    let mut found = Vec::new();
    let mut look = |hay: &str, needle: &str| {
        if let Some(at) = hay.find(needle) {
            let begin = text.floor_char_boundary(at.saturating_sub(300));
            let around = &text[begin..text.ceil_char_boundary((at + 100).min(text.len()))];
            found.push(format!("{needle}: {around}"));
        }
    };
    for at in 0..=core.len() - window {
        let part = &core[at..at + window];
        let each = |f: &dyn Fn(char) -> String| part.chars().map(f).collect::<String>();
        look(&lower, part);
        look(&lower, &hex(part.as_bytes()));
        look(&lower, &hex(part.to_uppercase().as_bytes()));
        look(&lower, &each(&|c| format!("%{:02x}", c as u32)));
        look(&lower, &each(&|c| format!("\\x{:02x}", c as u32)));
        look(&lower, &each(&|c| format!("\\u{:04x}", c as u32)));
        look(&lower, &each(&|c| format!("&#{};", c as u32)));
    }
    // What stays the same in base64 at every offset of the core in a value.
    for (shift, skip) in [(0, 0), (1, 2), (2, 3)] {
        let padded = [&vec![0; shift][..], core.as_bytes()].concat();
        let code = URL_SAFE_NO_PAD.encode(&padded);
        look(text, &code[skip..padded.len() / 3 * 4]);
    }
    found
}

#[test]
fn every_form_of_a_canary_is_found() {
    let mut filler = Filler::default();
    for _ in 0..21 {
        let canary = filler.canary();
        for form in echoes(&canary) {
            let text = format!("before {form} behind");
            assert!(!leaks(text.as_bytes()).is_empty(), "{form}");
        }
    }
    assert_eq!(leaks(b"failed to create container: not found"), [""; 0]);
}

#[test]
fn every_field_is_filled() {
    let pool = pool();
    let of = pool.get_message_by_name("runtime.v1.CreateContainerRequest");
    let mut filler = Filler::default();
    let bytes = filler.bytes(&of.expect("message"));
    assert!(filler.secrets.len() > 60, "{}", filler.secrets.len());
    for secret in &filler.secrets {
        let core = &secret[secret.find(MARK).expect("mark")..][..MARK.len() + 4];
        let mut windows = bytes.windows(core.len());
        assert!(windows.any(|w| w == core.as_bytes()), "{secret}");
    }
}
