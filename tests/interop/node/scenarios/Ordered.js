'use strict';

const crypto = require('crypto');
const { message } = require('../cluster');

const QUEUES = 4;
const KEYS = 6;
const EACH = 20;

/** Messages with one sharding key lie in one queue, and one consumer receives them in their order. */
module.exports = async cluster => {
  const topic = await cluster.createTopic('ordered', QUEUES);
  const producer = await cluster.producer('ordered');
  const keys = shardingKeys();
  const queues = new Map(keys.map(key => [key, new Set()]));
  for (let i = 0; i < EACH; i++) {
    for (const key of keys) {
      const each = message(topic, `${key}:${i}`);
      each.shardingKey = key;
      queues.get(key).add((await producer.send(each)).messageQueue.queueId);
    }
  }
  await producer.close();
  const { consumer, inbox } = await cluster.consumer('ordered', topic, '*', { options: { parallelConsumeLimit: 1 } });
  await inbox.untilBodies(KEYS * EACH);
  await consumer.close();
  const received = key => inbox.messages.map(({ body }) => String(body).split(':')).filter(parts => parts[0] === key)
    .map(parts => Number(parts[1]));
  return {
    'keys in one queue': keys.filter(key => queues.get(key).size === 1).length,
    'keys in order': keys.filter(key => received(key).every((number, place, all) => place === 0 || all[place - 1] < number))
      .length,
  };
};

/** ali-ons 3.12 takes queue 0 for no queue, so keys are wanted that it does not send there. */
function shardingKeys() {
  const keys = [];
  for (let i = 0; keys.length < KEYS; i++) {
    const key = `order-${i}`;
    if (crypto.createHash('md5').update(key).digest().readUInt32BE() % QUEUES !== 0) {
      keys.push(key);
    }
  }
  return keys;
}
