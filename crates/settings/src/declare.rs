//! `settings!`: one declaration of a section of the configuration file.
//!
//! The declaration is in the module that uses the settings. It generates the typed struct, the reader with its defaults,
//! the list of effective values (which a reload compares), the update of live values, the rows of `docs/CONFIG.md` and the
//! lines of `deploy/criscope.toml`:
//!
//! ```ignore
//! settings! {
//!     /// What the section is for.
//!     pub struct Example in "example" (listen: &Path) {
//!         /// What the key does.
//!         timeout: Duration = secs(10), BoundedDuration::between(secs(1), secs(60));
//!         /// A key that SIGHUP changes.
//!         level: String = "info".to_owned(), FilterDirective => live;
//!         /// A key without a fixed default: the reference says what holds instead, `like` is an example.
//!         owner: Option<FileOwner> = None, OptionalValue(UserAndGroup), or "not changed" like "\"root:root\"";
//!         /// A default that depends on other sections, which are parameters of the reader, or on keys above it.
//!         dir: PathBuf = listen.with_extension("state"), DirectoryPath, or "below `server.listen`" like "\"/run/x\"";
//!         /// A key that must be given, and what stands for it until the error is reported.
//!         name: String = String::new(), BackendName, or required like "\"a\"";
//!     }
//!     parts {
//!         rows: Vec<Row> = rows;
//!     }
//! }
//! ```
//!
//! A field has the name of its key; `Example::timeout` is the key itself ([`SettingKey`](super::SettingKey)), for checks that need its
//! position. `parts` are sections of their own, each with the function that reads it. `in "example.NAME" named name`
//! declares tables whose name is free, and `in "example.rows[]"` the tables of an array.

/// Declares a section; see the module's documentation.
#[macro_export]
macro_rules! settings {
    (
        $(#[doc = $about:literal])*
        $(#[derive($($derive:path),*)])?
        pub struct $Section:ident in $path:literal $(named $name:ident)?
        $(($($given:ident: $Given:ty),* $(,)?))? {
            $(
                $(#[doc = $help:literal])*
                $key:ident: $Type:ty = $default:expr, $kind:expr
                $(, or $words:tt like $example:literal)?
                $(=> $live:ident)?;
            )*
        }
        $(parts {
            $(
                $(#[doc = $part_doc:literal])*
                $part:ident: $Part:ty = $read:expr;
            )*
        })?
    ) => {
        $(#[doc = $about])*
        #[allow(unreachable_pub)]
        #[derive(Clone, Debug, PartialEq $($(, $derive)*)?)]
        pub struct $Section {
            $(
                /// The name of the table.
                pub $name: String,
            )?
            $($(#[doc = $help])* pub $key: $Type,)*
            $($($(#[doc = $part_doc])* #[allow(missing_docs)] pub $part: $Part,)*)?
        }

        #[allow(non_upper_case_globals, unreachable_pub)]
        impl $Section {
            $(
                $(#[doc = $help])*
                pub const $key: $crate::SettingKey<$Type> = $crate::SettingKey {
                    section: $path,
                    name: stringify!($key),
                    kind: &$kind,
                    fallback: $crate::settings!(@fallback ($default) $($words like $example)?),
                    live: $crate::settings!(@live $($live)?),
                    help: concat!($($help),*),
                };
            )*

            /// Reads the table with the path of this section.
            #[allow(dead_code)]
            pub fn read(
                reader: &mut $crate::SettingsReader<'_>
                $(, $name: String)?
                $($(, $given: $Given)*)?
            ) -> Self {
                let scope = reader.section($path);
                Self::read_at(reader, &scope $(, $name)? $($(, $given)*)?)
            }

            /// Reads one table of this section.
            #[allow(clippy::redundant_closure_call)]
            pub fn read_at<'d>(
                reader: &mut $crate::SettingsReader<'d>,
                scope: &$crate::TableScope<'d>
                $(, $name: String)?
                $($(, $given: $Given)*)?
            ) -> Self {
                let _ = (&reader, scope);
                $(let $key: $Type = reader.value(scope, &Self::$key, || $default);)*
                $($(let $part: $Part = ($read)(&mut *reader);)*)?
                Self { $($name,)? $($key,)* $($($part,)*)? }
            }
        }

        impl $crate::SettingsSection for $Section {
            const PATH: &'static str = $path;
            const ABOUT: &'static str = concat!($($about),*);

            fn describe(to: &mut $crate::SettingsSchema) {
                to.section::<Self>(&[$(&Self::$key),*]);
                $($(<$Part as $crate::SettingsSection>::describe(to);)*)?
            }

            fn path(&self, _row: usize) -> String {
                $(return $path.replace("NAME", &self.$name);)?
                #[allow(unreachable_code)]
                $path.replace("[]", &format!("[{_row}]"))
            }

            fn list(&self, _path: &str, to: &mut $crate::EffectiveSettings) {
                let _ = &to;
                $(Self::$key.list(_path, &self.$key, to);)*
                $($(self.$part.list(&self.$part.path(0), to);)*)?
            }

            fn reload(&mut self, new: &Self) {
                let _ = new;
                $(if Self::$key.live {
                    self.$key.clone_from(&new.$key);
                })*
                $($(self.$part.reload(&new.$part);)*)?
            }
        }
    };
    (@live) => { false };
    (@live live) => { true };
    (@fallback ($default:expr)) => { $crate::SettingDefault::Is(|| $default) };
    (@fallback ($default:expr) required like $example:literal) => {
        $crate::SettingDefault::Required { example: $example }
    };
    (@fallback ($default:expr) $words:literal like $example:literal) => {
        $crate::SettingDefault::Unset { words: $words, example: $example }
    };
}
