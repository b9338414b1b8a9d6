'use strict';

const { message } = require('../cluster');

/** A message with a level comes later; `setStartDeliverTime`, a property of the vendor's service, delays nothing. */
module.exports = async cluster => {
  const topic = await cluster.createTopic('delays', 1);
  const { consumer, inbox } = await cluster.consumer('delays', topic, '*');
  const producer = await cluster.producer('delays');
  const sentAt = Date.now();
  const level = message(topic, 'level');
  level.delayTimeLevel = 1;
  const highest = message(topic, 'too high a level');
  highest.delayTimeLevel = 99;
  const timed = message(topic, 'start deliver time');
  timed.setStartDeliverTime(sentAt + 3600000);
  const results = [];
  for (const each of [level, highest, timed, message(topic, 'plain')]) {
    results.push(await producer.send(each));
  }
  await producer.close();
  await inbox.untilBodies(3);
  await consumer.close();
  const late = inbox.messages.find(({ body }) => String(body) === 'level');
  return {
    statuses: results.map(({ sendStatus }) => sendStatus),
    'a second later': late.receivedAt - sentAt >= 1000,
    received: inbox.bodies(),
    properties: Object.keys(late.properties).sort(),
  };
};
