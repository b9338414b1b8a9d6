'use strict';

const { message } = require('../cluster');

const COUNT = 20;

/** The broker evaluates an SQL92 expression; one that does not parse is refused with each heartbeat. */
module.exports = async cluster => {
  const topic = await cluster.createTopic('sql_filter', 2);
  const producer = await cluster.producer('sql_filter');
  for (let i = 0; i < COUNT; i++) {
    await producer.send(message(topic, `sql-${i}`, { properties: { price: String(i), kind: i % 2 ? 'odd' : 'even' } }));
  }
  await producer.close();
  const sql = text => ({ expressionType: 'SQL92', subString: text });
  const good = await cluster.consumer('sql_filter', topic, sql("price >= 10 AND kind = 'odd'"));
  await good.inbox.untilBodies(5);
  await good.consumer.close();
  const bad = await cluster.consumer('sql_filter_bad', topic, sql('price >='));
  await bad.inbox.until(inbox => inbox.errors.length > 0, 'an error');
  return { good: good.inbox.bodies(), 'of one that does not parse': bad.inbox.messages.length };
};
