'use strict';

const PATIENCE_MS = 60000;

/** The messages that a consumer received, and the errors it told of. Delivery is at least once. */
class Inbox {
  constructor() {
    this.messages = [];
    this.errors = [];
    this._waiting = [];
  }

  add(message) {
    this.messages.push({
      body: message.body, tags: message.tags, keys: message.keys, properties: message.properties, msgId: message.msgId,
      queueId: message.queueId, queueOffset: message.queueOffset, reconsumeTimes: message.reconsumeTimes,
      topic: message.topic, receivedAt: Date.now(),
    });
    this._look();
  }

  fail(error) {
    this.errors.push(error.message);
    this._look();
  }

  /** The different bodies, as texts, in order. */
  bodies() {
    return [...new Set(this.messages.map(message => String(message.body)))].sort();
  }

  /** Waits until a condition on this inbox holds; fails after a minute. */
  until(condition, what) {
    return new Promise((resolve, reject) => {
      const patience = setTimeout(() => {
        reject(new Error(`waited in vain for ${what}; ${this.messages.length} came, errors: ${this.errors}`));
      }, PATIENCE_MS);
      this._waiting.push({ condition, resolve, patience });
      this._look();
    });
  }

  /** Waits for so many different bodies. */
  untilBodies(count) {
    return this.until(inbox => inbox.bodies().length >= count, `${count} bodies`);
  }

  _look() {
    this._waiting = this._waiting.filter(({ condition, resolve, patience }) => {
      if (!condition(this)) {
        return true;
      }
      clearTimeout(patience);
      resolve();
      return false;
    });
  }
}

module.exports = Inbox;
