// Carries out a plan with mysql2, or with MariaDB's connector, which has batches of its own.
import { readFileSync } from 'node:fs'

const [driver, host, port, user, way, plan] = process.argv.slice(2)
const { default: promises } = await import(driver === 'mysql2' ? 'mysql2/promise' : driver)
const session = await promises.createConnection({
  host,
  port: Number(port),
  user,
  password: process.env.MYSQL_PWD,
  database: 'sbtest',
  compress: way === 'compressed',
})
const value = (field) => (field === 'NULL' ? null : field.startsWith("'") ? field.slice(1) : Number(field))

// mysql2 answers with a pair, of which the second part describes the columns.
const outcome = (answer) => (driver === 'mysql2' ? answer[0] : answer)

async function batch(sql, rows) {
  if (session.batch) return (await session.batch(sql, rows)).affectedRows
  let affected = 0
  for (const row of rows) affected += outcome(await session.execute(sql, row)).affectedRows
  return affected
}

for (const step of readFileSync(plan, 'utf8').trimEnd().split('\n')) {
  const [kind, sql, ...fields] = step.split('\t')
  try {
    if (kind === 'batch') {
      const width = Number(fields.shift())
      const values = fields.map(value)
      const rows = Array.from({ length: values.length / width }, (_, n) => values.slice(n * width, (n + 1) * width))
      console.log(`affected ${await batch(sql, rows)}`)
      continue
    }
    const answer = kind === 'text' ? session.query(sql) : session.execute(sql, fields.map(value))
    const found = outcome(await answer)
    console.log(Array.isArray(found) ? `rows ${found.length}` : `affected ${found.affectedRows}`)
  } catch (error) {
    if (!error.errno) throw error
    console.log(`error ${error.errno}`)
  }
}
await session.end()
