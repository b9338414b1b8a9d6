'use strict';

const { message } = require('../cluster');

const COUNT = 30;

/** Each member of a broadcasting group receives everything. */
module.exports = async cluster => {
  const topic = await cluster.createTopic('broadcasting', 2);
  const producer = await cluster.producer('broadcasting');
  const members = [];
  for (let i = 0; i < 2; i++) {
    members.push(await cluster.consumer('broadcasting', topic, '*', { options: { isBroadcast: true } }));
  }
  for (let i = 0; i < COUNT; i++) {
    await producer.send(message(topic, `broadcast-${i}`));
  }
  await Promise.all(members.map(({ inbox }) => inbox.untilBodies(COUNT)));
  return { first: members[0].inbox.bodies().length, second: members[1].inbox.bodies().length };
};
