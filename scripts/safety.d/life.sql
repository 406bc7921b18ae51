-- Existing data and accounts of the server's owner. Replicated; toll must not touch them.
CREATE DATABASE shop;
CREATE DATABASE billing;
-- As a pattern of LIKE, toll_load means this one too.
CREATE DATABASE tollxload;
CREATE TABLE shop.customer (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(60), KEY (name));
CREATE TABLE shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, customer INT, total DECIMAL(10,2), placed DATETIME,
  KEY (customer));
CREATE TABLE billing.card (id INT PRIMARY KEY AUTO_INCREMENT, number CHAR(16));
CREATE TABLE tollxload.sbtest1 (id INT PRIMARY KEY, k INT, c CHAR(120), pad CHAR(60));
INSERT INTO shop.customer (name) VALUES
  ('Ada'), ('Berta'), ('Clara'), ('Dora'), ('Emma'), ('Fanny'), ('Greta'), ('Hanna');
INSERT INTO shop.customer (name)
  SELECT CONCAT(a.name, b.name, c.name) FROM shop.customer a, shop.customer b, shop.customer c;
INSERT INTO shop.orders (customer, total, placed) SELECT id, id * 1.5, '2024-02-29 12:00:00' FROM shop.customer;
INSERT INTO billing.card (number) VALUES ('4111111111111111'), ('5500000000000004');
INSERT INTO tollxload.sbtest1 VALUES (1, 1, 'c', 'pad');
CREATE VIEW shop.spent AS SELECT customer, SUM(total) AS total FROM shop.orders GROUP BY customer;
CREATE PROCEDURE shop.raise() UPDATE shop.orders SET total = total * 1.1;
CREATE TRIGGER shop.rounded BEFORE INSERT ON shop.orders FOR EACH ROW SET NEW.total = ROUND(NEW.total, 2);
