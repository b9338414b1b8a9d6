'use strict';

const { message } = require('../cluster');

const COUNT = 40;
const UNICODE = { tags: 'größe', keys: ['ключ', '鍵', '🔑'], properties: { ' наме ': '値 = "1"', emoji: '🦖' } };

/** What is sent arrives once, with tag, keys, properties and body, characters of every length in UTF-8 among them. */
module.exports = async cluster => {
  const topic = await cluster.createTopic('produce', 4);
  const producer = await cluster.producer('produce');
  const results = [];
  for (let i = 0; i < COUNT; i++) {
    results.push(await producer.send(message(topic, `text ${i}`, { tags: 'plain', keys: [`k${i}`, `half${i % 2}`] })));
  }
  await producer.send(message(topic, 'Ünïcödé 🦕', UNICODE));
  const compressed = 'compressible '.repeat(1000);
  await producer.send(message(topic, compressed, { tags: 'large' }));
  await producer.close();
  const { consumer, inbox } = await cluster.consumer('produce', topic, '*');
  await inbox.untilBodies(COUNT + 2);
  await consumer.close();
  const unicode = inbox.messages.find(({ tags }) => tags === UNICODE.tags);
  const plain = inbox.messages.filter(({ tags }) => tags === 'plain');
  return {
    statuses: [...new Set(results.map(({ sendStatus }) => sendStatus))],
    queues: [...new Set(results.map(({ messageQueue }) => messageQueue.queueId))].sort(),
    'offset ids are those of the messages': plain.every(({ msgId }) => results.some(result => result.msgId === msgId)),
    'keys arrived': plain.filter(({ body, keys }) => keys.startsWith(`k${String(body).slice(5)} half`)).length,
    properties: Object.keys(plain[0].properties).sort(),
    'of a body that was compressed': inbox.bodies().includes(compressed),
    unicode: { body: String(unicode.body), tags: unicode.tags, keys: unicode.keys, name: unicode.properties[' наме '],
      emoji: unicode.properties.emoji },
  };
};
