"""Words to an MQTT broker, with Home Assistant's discovery: the words then appear there as an event entity.

    pip install '.[mic]' 'paho-mqtt>=2'
    python examples/mqtt/publish.py --host homeassistant.local --name kitchen --user ... --password-file ...

Topics, for --name kitchen:

    kws-edge/kitchen/event      each word: {"event_type": "yes", "probability": ..., "entropy": ..., ...}
    kws-edge/kitchen/status     "online" while it listens, else "offline" (from the broker, if the connection breaks)
    homeassistant/event/kws-edge-kitchen/words/config       what Home Assistant needs to know, kept by the broker

Abstentions are not published unless --abstentions asks for them; their event_type is "not_sure". In Home Assistant, an
automation triggers on the state of event.kitchen_words and looks at its attribute event_type; with not_from, as in
examples/README.md, or the last word counts again when the device comes back.
"""

import argparse
import json
import re
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from kws_edge import Event, KeywordModel, KwsEdgeError, Microphone, Spotter, WavFile

NOT_SURE = "not_sure"
PATIENCE = 10
"""Seconds for the broker to answer."""


def discovery(name: str, words: list[str]) -> dict[str, Any]:
    """What Home Assistant reads to make an event entity of the words."""
    return {
        "name": "words",
        "unique_id": f"kws-edge-{name}",
        "state_topic": f"kws-edge/{name}/event",
        "availability_topic": f"kws-edge/{name}/status",
        "event_types": [*words, NOT_SURE],
        "icon": "mdi:microphone-message",
        "device": {"identifiers": [f"kws-edge-{name}"], "name": name, "manufacturer": "kws-edge"},
    }


def message(event: Event) -> dict[str, Any]:
    """An event as Home Assistant takes it: event_type, and attributes."""
    numbers = {key: round(getattr(event, key), 4) for key in ("probability", "entropy", "vacuity", "start", "end")}
    reason = None if event.reason is None else event.reason.value
    return {"event_type": event.label or NOT_SURE, "guess": event.guess, "reason": reason, **numbers}


def connect(given: argparse.Namespace, words: list[str]) -> mqtt.Client:
    """A connection that comes back by itself, also to a broker that forgot it, and whose end the broker announces."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=f"kws-edge-{given.name}")
    status = f"kws-edge/{given.name}/status"
    client.will_set(status, "offline", qos=1, retain=True)
    if given.user:
        password = Path(given.password_file).read_text(encoding="utf-8").strip() if given.password_file else None
        client.username_pw_set(given.user, password)
    config = json.dumps(discovery(given.name, words))
    answers: SimpleQueue[Any] = SimpleQueue()

    def on_connect(client: mqtt.Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not reason.is_failure:
            client.publish(f"homeassistant/event/kws-edge-{given.name}/words/config", config, qos=1, retain=True)
            client.publish(status, "online", qos=1, retain=True)
        answers.put(reason)

    client.on_connect = on_connect
    try:
        client.connect(given.host, given.port)
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"no connection to {given.host}:{given.port} ({why}); expected an MQTT broker there") from None
    client.loop_start()
    try:
        reason = answers.get(timeout=PATIENCE)
    except Empty:
        raise OSError(f"{given.host}:{given.port} does not answer as a broker") from None
    if reason.is_failure:
        raise OSError(f"the broker refuses the connection: {reason}; expected its --user and --password-file")
    return client


def device(text: str) -> str:
    """A name that topics can hold."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise argparse.ArgumentTypeError(f"{text!r}; expected letters, digits, - and _")
    return text


def main() -> None:
    """Publish until the recording ends, or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1", help="of the broker  [127.0.0.1]")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--user")
    parser.add_argument("--password-file", help="a file with the password, so that no list of processes shows it")
    parser.add_argument(
        "--name", type=device, default="kws-edge", help="of this device, as in topics: letters, digits, - and _"
    )
    parser.add_argument("--words", help="as in yes,no  [all that the model knows]")
    parser.add_argument(
        "--abstentions",
        choices=["none", "words", "all"],
        default="none",
        help='publish "not sure" too: where a word may have been meant, or after every sound  [none]',
    )
    parser.add_argument("--replay", help="a recording instead of the microphone")
    given = parser.parse_args()
    try:
        words = [word.strip() for word in given.words.split(",") if word.strip()] if given.words else None
        spotter = Spotter(KeywordModel.load(), words=words, abstentions=given.abstentions)
        client = connect(given, list(spotter.words))
        for event in spotter.listen(WavFile(given.replay) if given.replay else Microphone()):
            client.publish(f"kws-edge/{given.name}/event", json.dumps(message(event)), qos=1)
        last = client.publish(f"kws-edge/{given.name}/status", "offline", qos=1, retain=True)
        last.wait_for_publish(PATIENCE)
        client.disconnect()
        client.loop_stop()
    except (KwsEdgeError, OSError, RuntimeError) as error:  # paho raises the last where the broker has gone
        raise SystemExit(f"error: {error}") from None
    except KeyboardInterrupt:
        pass  # the broker says "offline"


if __name__ == "__main__":
    main()
