// The microphone as a stream of ArrayBuffers: 0.1 s of int16 at 16 kHz each.

export class Microphone {
  // Asks for permission; throws an Error that says what to do where there is none.
  static async open(onChunk, onEnd) {
    if (!navigator.mediaDevices) {
      throw new Error("The browser gives the microphone only to pages from https or from localhost.");
    }
    // What makes a voice pleasant for people changes what the model was trained on.
    const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio });
    } catch (error) {
      const denied = error.name === "NotAllowedError";
      throw new Error(denied ? "The microphone was not allowed; allow it in the browser's settings of this page." : `No microphone: ${error.message}`);
    }
    const microphone = new Microphone();
    microphone.stream = stream;
    try {
      await microphone.capture(onChunk);
    } catch (error) {
      microphone.close(); // or it would stay on, and nobody could turn it off
      throw error;
    }
    stream.getAudioTracks()[0].addEventListener("ended", () => onEnd("The microphone went away."));
    return microphone;
  }

  async capture(onChunk) {
    this.context = new AudioContext();
    await this.context.audioWorklet.addModule(new URL("capture-worklet.js", import.meta.url));
    const capture = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0 });
    capture.port.onmessage = ({ data }) => onChunk(data);
    this.context.createMediaStreamSource(this.stream).connect(capture);
  }

  close() {
    for (const track of this.stream.getTracks()) track.stop();
    this.context?.close();
  }
}
