//! Pictures in PNG files.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

use super::Architecture;
use super::model::Picture;
use crate::Error;

/// The most pixels of a row, and rows, of a picture that is served.
pub const MOST: u32 = 1024;
/// The fewest.
pub const FEWEST: u32 = 8;

/// Reads a picture: grey, or the luma of its colours (BT.601); what is transparent is taken as if it were not.
///
/// # Errors
/// [`Error::NoPicture`]: a file that is missing, is no PNG, breaks off, or has a size that is not served.
pub fn read(path: &Path) -> Result<Picture, Error> {
    let no = |why: String| Error::NoPicture {
        path: path.to_owned(),
        why,
    };
    let file = File::open(path).map_err(|error| no(error.to_string()))?;
    let mut decoder = png::Decoder::new(BufReader::new(file));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|error| no(error.to_string()))?;
    let (width, height) = reader.info().size();
    check_size(width, height).map_err(no)?;
    let size = reader.output_buffer_size().unwrap_or(0);
    let mut bytes = vec![0; size];
    let info = reader
        .next_frame(&mut bytes)
        .map_err(|error| no(error.to_string()))?;
    let pixels = bytes[..info.buffer_size()].chunks_exact(info.color_type.samples());
    Ok(Picture {
        width: width as usize,
        values: pixels.map(luma).collect(),
    })
}

/// Whether pictures of that size are served; if not, why.
pub(super) fn check_size(width: u32, height: u32) -> Result<(), String> {
    let served = FEWEST..=MOST;
    match served.contains(&width) && served.contains(&height) {
        true => Ok(()),
        false => Err(format!(
            "it has {width} × {height} pixels; choose from {FEWEST} to {MOST} either way"
        )),
    }
}

/// What a pixel with one grey value or three colours, and perhaps an opacity, is in grey.
fn luma(pixel: &[u8]) -> f32 {
    let value = |byte: u8| f32::from(byte) / 255.0;
    match *pixel {
        [red, green, blue, ..] => 0.299 * value(red) + 0.587 * value(green) + 0.114 * value(blue),
        [grey, ..] => value(grey),
        [] => 0.0,
    }
}

/// Writes the answer of a network that makes pictures larger, as [`write()`] does.
///
/// # Errors
/// As there; [`Error::Unfit`] for an answer that is no picture.
pub fn write_larger(path: &Path, from: Architecture, answer: &Picture) -> Result<(), Error> {
    match from {
        Architecture::Superresolution => write(path, answer),
        Architecture::Squeeze => Err(Error::Unfit {
            what:
                "a score of each class is no picture; choose --network superresolution for --larger"
                    .into(),
        }),
    }
}

/// Writes a picture in 256 shades of grey.
///
/// # Errors
/// [`Error::NoPicture`]: a file that cannot be written.
pub fn write(path: &Path, picture: &Picture) -> Result<(), Error> {
    let no = |why: String| Error::NoPicture {
        path: path.to_owned(),
        why,
    };
    let file = File::create(path).map_err(|error| no(error.to_string()))?;
    let (width, height) = (picture.width as u32, picture.height() as u32);
    let mut encoder = png::Encoder::new(BufWriter::new(file), width, height);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let shades: Vec<u8> = picture.values.iter().map(|value| shade(*value)).collect();
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&shades)?;
        writer.finish()
    });
    written.map_err(|error| no(error.to_string()))
}

/// The nearest shade; what is darker than black is black, what is lighter than white is white.
fn shade(value: f32) -> u8 {
    // A cast saturates.
    (value * 255.0).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_their_luma() {
        for (pixel, grey) in [
            (&[51][..], 51),
            (&[51, 0], 51),
            (&[255, 0, 0], 76),
            (&[0, 255, 0], 150),
            (&[0, 0, 255, 9], 29),
            (&[255, 255, 255], 255),
        ] {
            assert_eq!(shade(luma(pixel)), grey, "{pixel:?}");
        }
        assert_eq!(
            [-0.5, 0.0, 0.499, 1.0, 7.0].map(shade),
            [0, 0, 127, 255, 255]
        );
    }
}
