"""A light switch by voice for the Raspberry Pi: "on" and "off" switch an LED, or a relay, on a GPIO pin.

    pip install '.[mic]' gpiozero lgpio
    python examples/gpio/light.py --pin 17

Where the model is not sure, nothing happens but a line that says so. To try it without a Raspberry Pi or microphone:

    GPIOZERO_PIN_FACTORY=mock python examples/gpio/light.py --replay kws_edge/samples/demo.flac --on yes --off left
"""

import argparse
from collections.abc import Iterable

from gpiozero import LED, GPIOZeroError

from kws_edge import Event, KeywordModel, KwsEdgeError, Microphone, Spotter, WavFile


def switch(light: LED, events: Iterable[Event], on: str, off: str) -> None:
    """Switch the light by each event."""
    for event in events:
        if event.label == on:
            light.on()
        elif event.label == off:
            light.off()
        said = event.label or f"not sure ({event.reason}), best guess {event.guess}"
        print(f"{event.time:.1f} s: {said}; the light is {'on' if light.is_lit else 'off'}", flush=True)


def main() -> None:
    """Listen until the recording ends, or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pin", type=int, default=17, help="GPIO number, as gpiozero counts  [17]")
    parser.add_argument("--on", default="on", help="the word that switches on")
    parser.add_argument("--off", default="off", help="the word that switches off")
    parser.add_argument("--replay", help="a recording instead of the microphone")
    given = parser.parse_args()
    try:
        spotter = Spotter(KeywordModel.load(), words={given.on, given.off})
        source = WavFile(given.replay) if given.replay else Microphone()
        switch(LED(given.pin), spotter.listen(source), given.on, given.off)
    except KwsEdgeError as error:
        raise SystemExit(f"error: {error}") from None
    except GPIOZeroError as error:
        raise SystemExit(f"error: no pin {given.pin} here ({error}); try it with GPIOZERO_PIN_FACTORY=mock") from None
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
