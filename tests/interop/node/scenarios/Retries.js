'use strict';

const { RETRY, message } = require('../cluster');

/** What a handler could not consume comes again after ten seconds (the broker chooses the level), by the retry topic. */
module.exports = async cluster => {
  const topic = await cluster.createTopic('retries', 2);
  const producer = await cluster.producer('retries');
  for (const body of ['good', 'asks for it', 'throws']) {
    await producer.send(message(topic, body, { tags: 'a', keys: ['key'], properties: { mine: 'yes' } }));
  }
  await producer.close();
  const handle = ({ body, reconsumeTimes }) => {
    if (reconsumeTimes === 0 && String(body) === 'throws') {
      throw new Error('cannot consume it');
    }
    return reconsumeTimes === 0 && String(body) === 'asks for it' ? RETRY : undefined;
  };
  const { consumer, inbox } = await cluster.consumer('retries', topic, 'a', { handle });
  await inbox.until(({ messages }) => messages.length >= 5, 'five deliveries');
  await consumer.close();
  const describe = ({ reconsumeTimes, properties, topic: name, tags, keys }) => ({
    reconsumeTimes, properties: Object.keys(properties).sort(), 'right topic': name === topic, tags, keys,
    'origin known': 'ORIGIN_MESSAGE_ID' in properties,
  });
  // how often it finds no route to a topic that is still to come depends on the moment
  const outcome = { 'errors of the handler': inbox.errors.filter(text => text.startsWith('process mq message failed')).length };
  for (const body of inbox.bodies()) {
    outcome[body] = inbox.messages.filter(each => String(each.body) === body).map(describe);
  }
  return outcome;
};
